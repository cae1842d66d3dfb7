// Matrix products on CUDA devices, through cuBLAS, which reads in column order: there the bytes of
// a row-major matrix are its transpose, and c = a b becomes cᵀ = bᵀ aᵀ.
#include "runtime/matmul.h"

#include <cublas_v2.h>

#include "runtime/cuda/stream.h"

namespace weft {
namespace {

void check(cublasStatus_t status, const Tensor& a, const Tensor& b) {
  require(status == CUBLAS_STATUS_SUCCESS, "matmul: cuBLAS reports {} for {} × {}",
          cublasGetStatusString(status), a.shape(), b.shape());
}

// cuBLAS's handle on the device's stream, with a workspace of its own, so that a captured step
// allocates nothing.
cublasHandle_t handle_of(const Cuda& device) {
  constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
  static void* const workspace = [] {
    void* made = nullptr;
    check_cuda(cudaMalloc(&made, workspace_bytes), "matmul");
    return made;
  }();
  static const cublasHandle_t handle = [&] {
    cublasHandle_t made = nullptr;
    const auto done = [&](cublasStatus_t status) {
      if (status == CUBLAS_STATUS_SUCCESS) return;
      if (made != nullptr) cublasDestroy(made);
      fail("matmul: cuBLAS could not be started: {}", cublasGetStatusString(status));
    };
    done(cublasCreate(&made));
    // Parts of a sum that several blocks compute are added in f32, too.
    done(cublasSetMathMode(made, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    done(cublasSetStream(made, stream_of(device)));
    done(cublasSetWorkspace(made, workspace, workspace_bytes));
    return made;
  }();
  return handle;
}

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, i64 m,
                    i64 n, i64 k, const float* a, i64 lda, i64 stride_a, const float* b, i64 ldb,
                    i64 stride_b, float beta, float* c, i64 ldc, i64 stride_c, i64 batch) {
  const float one = 1;
  if (products_in_tf32()) {
    return cublasGemmStridedBatchedEx_64(handle, op_a, op_b, m, n, k, &one, a, CUDA_R_32F, lda,
                                         stride_a, b, CUDA_R_32F, ldb, stride_b, &beta, c,
                                         CUDA_R_32F, ldc, stride_c, batch,
                                         CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT);
  }
  return cublasSgemmStridedBatched_64(handle, op_a, op_b, m, n, k, &one, a, lda, stride_a, b, ldb,
                                      stride_b, &beta, c, ldc, stride_c, batch);
}

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, i64 m,
                    i64 n, i64 k, const double* a, i64 lda, i64 stride_a, const double* b, i64 ldb,
                    i64 stride_b, double beta, double* c, i64 ldc, i64 stride_c, i64 batch) {
  const double one = 1;
  return cublasDgemmStridedBatched_64(handle, op_a, op_b, m, n, k, &one, a, lda, stride_a, b, ldb,
                                      stride_b, &beta, c, ldc, stride_c, batch);
}

// Sums in f32; c is bf16 or f32.
template <class C>
cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, i64 m,
                    i64 n, i64 k, const bf16* a, i64 lda, i64 stride_a, const bf16* b, i64 ldb,
                    i64 stride_b, float beta, C* c, i64 ldc, i64 stride_c, i64 batch) {
  const float one = 1;
  constexpr cudaDataType_t type = std::is_same_v<C, float> ? CUDA_R_32F : CUDA_R_16BF;
  return cublasGemmStridedBatchedEx_64(handle, op_a, op_b, m, n, k, &one, a, CUDA_R_16BF, lda,
                                       stride_a, b, CUDA_R_16BF, ldb, stride_b, &beta, c, type, ldc,
                                       stride_c, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

// The layout of a tensor's last two axes for a library that wants one stride to be 1.
struct Layout {
  bool transposed = false;
  i64 leading = 1;
};
// x, or a packed copy where it has no such layout.
Tensor readable(const Tensor& x, Layout& layout) {
  const i64 rows = x.size(-2), columns = x.size(-1);
  const i64 down = x.stride(-2), across = x.stride(-1);
  layout = {false, rows == 1 ? columns : down};
  if ((across == 1 || columns == 1) && (rows == 1 || down >= columns)) return x;
  layout = {true, columns == 1 ? rows : across};
  if ((down == 1 || rows == 1) && (columns == 1 || across >= rows)) return x;
  layout = {false, columns};
  return x.clone();
}

}  // namespace

// Batch axes are looped over, but for the last one, which is a single cuBLAS call.
template <class Device, class T>
void MatmulKernels<Device, T>::batched(const Device& device, const Tensor& a, const Tensor& b,
                                       const Tensor& c, bool add) {
  if (c.count() == 0) return;
  if (a.size(-1) == 0) {
    if (!add) c.fill(0);
    return;
  }
  const int axes = c.rank() - 2;
  if (axes >= 2) {
    const bool joint = b.rank() == 2;
    if (a.contiguous() && (joint || b.contiguous()) && c.contiguous()) {  // one batch axis
      const auto flat = [](const Tensor& x) {
        return x.reshape({x.count() / (x.size(-2) * x.size(-1)), x.size(-2), x.size(-1)});
      };
      return batched(device, flat(a), joint ? b : flat(b), flat(c), add);
    }
    const auto item = [&](const Tensor& x, i64 i) {
      Shape inner;
      for (int axis = 1; axis < x.rank(); ++axis) inner.push_back(x.size(axis));
      return x.slice(0, i, i + 1).reshape(inner);
    };
    for (i64 i = 0; i < c.size(0); ++i) {
      batched(device, item(a, i), joint ? b : item(b, i), item(c, i), add);
    }
    return;
  }
  Layout layout_a, layout_b;
  const Tensor left = readable(a, layout_a), right = readable(b, layout_b);
  const i64 m = c.size(-2), n = c.size(-1), k = a.size(-1);
  const auto step = [&](const Tensor& x) { return axes == 1 && x.rank() == 3 ? x.stride(0) : 0; };
  const auto op = [](const Layout& layout) {
    return layout.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  const auto into = [&](auto* target) {
    check(gemm(handle_of(device), op(layout_b), op(layout_a), n, m, k, right.data<T>(),
               layout_b.leading, step(right), left.data<T>(), layout_a.leading, step(left),
               add ? 1 : 0, target, m == 1 ? n : c.stride(-2), step(c), axes == 1 ? c.size(0) : 1),
          a, b);
  };
  if constexpr (std::is_same_v<T, bf16>) {
    if (c.dtype() == DType::f32) return into(c.data<float>());
  }
  into(c.data<T>());
}

template struct MatmulKernels<Cuda, float>;
template struct MatmulKernels<Cuda, double>;
template struct MatmulKernels<Cuda, bf16>;

}  // namespace weft
