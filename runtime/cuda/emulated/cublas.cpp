#include <cublas_v2.h>

#include <bit>
#include <cmath>
#include <vector>

#include "runtime/gemm.h"

struct EmulatedCublas {
  cudaStream_t stream = nullptr;
};

namespace {

// Operands as they are stored.
struct Exact {
  template <class T>
  static const T* of(const T* x, std::int64_t, std::int64_t, std::int64_t, std::vector<T>&) {
    return x;
  }
};

// TF32 has the range of f32 and eleven significant bits; to the nearest, ties away from zero.
struct Tf32 {
  static float of(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return std::isfinite(x) ? std::bit_cast<float>((bits + 0x1000u) & 0xffffe000u) : x;
  }
  // A matrix of `columns` columns, `leading` apart, rounded in memory of its own.
  static const float* of(const float* x, std::int64_t rows, std::int64_t columns,
                         std::int64_t leading, std::vector<float>& rounded) {
    rounded.assign(static_cast<std::size_t>(leading * columns), 0);
    for (std::int64_t j = 0; j < columns; ++j) {
      for (std::int64_t i = 0; i < rows; ++i) rounded[j * leading + i] = of(x[j * leading + i]);
    }
    return rounded.data();
  }
};

// S is the type of alpha and beta.
template <class Operand = Exact, class T, class C, class S>
cublasStatus_t multiply(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                        std::int64_t m, std::int64_t n, std::int64_t k, S alpha, const T* a,
                        std::int64_t lda, long long stride_a, const T* b, std::int64_t ldb,
                        long long stride_b, S beta, C* c, std::int64_t ldc, long long stride_c,
                        std::int64_t batch) {
  const bool ta = op_a == CUBLAS_OP_T, tb = op_b == CUBLAS_OP_T;
  if (m < 0 || n < 0 || k < 0 || batch < 0 || lda < std::max<std::int64_t>(1, ta ? k : m) ||
      ldb < std::max<std::int64_t>(1, tb ? n : k) || ldc < std::max<std::int64_t>(1, m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (alpha != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Read in row order, column-order matrices are transposed: Cᵀ = op(B)ᵀ op(A)ᵀ.
  const cudaError_t error = weft::emulated::enqueue(handle->stream, [=] {
    std::vector<T> rounded_a, rounded_b;
    for (std::int64_t i = 0; i < batch; ++i) {
      const T* const left = Operand::of(a + i * stride_a, ta ? k : m, ta ? m : k, lda, rounded_a);
      const T* const right = Operand::of(b + i * stride_b, tb ? n : k, tb ? k : n, ldb, rounded_b);
      weft::gemm(tb, ta, n, m, k, right, ldb, left, lda, beta, c + i * stride_c, ldc);
      if constexpr (weft::emulated::accesses::seen) {
        for (std::int64_t j = 0; j < n; ++j) {
          weft::emulated::accesses::host_wrote(c + i * stride_c + j * ldc,
                                               static_cast<std::size_t>(m) * sizeof *c);
        }
      }
    }
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new EmulatedCublas;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "no error";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "a product failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported";
  }
  return "unknown status";
}

cublasStatus_t cublasSgemmStridedBatched_64(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, std::int64_t m,
    std::int64_t n, std::int64_t k, const float* alpha, const float* a, std::int64_t lda,
    long long stride_a, const float* b, std::int64_t ldb, long long stride_b, const float* beta,
    float* c, std::int64_t ldc, long long stride_c, std::int64_t batch) {
  return multiply(handle, op_a, op_b, m, n, k, *alpha, a, lda, stride_a, b, ldb, stride_b, *beta, c,
                  ldc, stride_c, batch);
}

cublasStatus_t cublasDgemmStridedBatched_64(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, std::int64_t m,
    std::int64_t n, std::int64_t k, const double* alpha, const double* a, std::int64_t lda,
    long long stride_a, const double* b, std::int64_t ldb, long long stride_b, const double* beta,
    double* c, std::int64_t ldc, long long stride_c, std::int64_t batch) {
  return multiply(handle, op_a, op_b, m, n, k, *alpha, a, lda, stride_a, b, ldb, stride_b, *beta, c,
                  ldc, stride_c, batch);
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, std::int64_t m,
    std::int64_t n, std::int64_t k, const void* alpha, const void* a, cudaDataType_t type_a,
    std::int64_t lda, long long stride_a, const void* b, cudaDataType_t type_b, std::int64_t ldb,
    long long stride_b, const void* beta, void* c, cudaDataType_t type_c, std::int64_t ldc,
    long long stride_c, std::int64_t batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
  using weft::bf16;
  if (type_a == CUDA_R_32F && type_b == CUDA_R_32F && type_c == CUDA_R_32F &&
      compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
    return multiply<Tf32>(handle, op_a, op_b, m, n, k, *static_cast<const float*>(alpha),
                          static_cast<const float*>(a), lda, stride_a, static_cast<const float*>(b),
                          ldb, stride_b, *static_cast<const float*>(beta), static_cast<float*>(c),
                          ldc, stride_c, batch);
  }
  if (type_a != CUDA_R_16BF || type_b != CUDA_R_16BF) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto into = [&](auto* target) {
    return multiply(handle, op_a, op_b, m, n, k, *static_cast<const float*>(alpha),
                    static_cast<const bf16*>(a), lda, stride_a, static_cast<const bf16*>(b), ldb,
                    stride_b, *static_cast<const float*>(beta), target, ldc, stride_c, batch);
  };
  return type_c == CUDA_R_32F ? into(static_cast<float*>(c)) : into(static_cast<bf16*>(c));
}
