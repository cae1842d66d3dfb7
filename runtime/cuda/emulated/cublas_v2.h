// Replaces <cublas_v2.h> on machines without CUDA: the calls that weft makes, under the same names,
// computed by the CPU's products (runtime/gemm.h). Matrices are in column order, as in cuBLAS.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };

enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };

using cublasHandle_t = struct EmulatedCublas*;

enum cublasMath_t { CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };

cublasStatus_t cublasCreate(cublasHandle_t*);
cublasStatus_t cublasDestroy(cublasHandle_t);
cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t);
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t);
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void* workspace, std::size_t bytes);
const char* cublasGetStatusString(cublasStatus_t);

// C_i = α op(A_i) op(B_i) + β C_i for i < batch; α must be 1 here.
cublasStatus_t cublasSgemmStridedBatched_64(
    cublasHandle_t, cublasOperation_t, cublasOperation_t, std::int64_t m, std::int64_t n,
    std::int64_t k, const float* alpha, const float* a, std::int64_t lda, long long stride_a,
    const float* b, std::int64_t ldb, long long stride_b, const float* beta, float* c,
    std::int64_t ldc, long long stride_c, std::int64_t batch);
cublasStatus_t cublasDgemmStridedBatched_64(
    cublasHandle_t, cublasOperation_t, cublasOperation_t, std::int64_t m, std::int64_t n,
    std::int64_t k, const double* alpha, const double* a, std::int64_t lda, long long stride_a,
    const double* b, std::int64_t ldb, long long stride_b, const double* beta, double* c,
    std::int64_t ldc, long long stride_c, std::int64_t batch);
// Here A and B are bf16 and C bf16 or f32, or all are f32 and the compute type is FAST_TF32, which
// rounds A and B to eleven bits.
cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t, cublasOperation_t, cublasOperation_t, std::int64_t m, std::int64_t n,
    std::int64_t k, const void* alpha, const void* a, cudaDataType_t type_a, std::int64_t lda,
    long long stride_a, const void* b, cudaDataType_t type_b, std::int64_t ldb, long long stride_b,
    const void* beta, void* c, cudaDataType_t type_c, std::int64_t ldc, long long stride_c,
    std::int64_t batch, cublasComputeType_t, cublasGemmAlgo_t);
