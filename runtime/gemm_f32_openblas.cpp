#include <cblas.h>

#include "runtime/gemm.h"
#include "runtime/parallel.h"

namespace weft {

void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const float* a, i64 lda,
          const float* b, i64 ldb, float beta, float* c, i64 ldc) {
  const OneThread one;
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, blas_size(m), blas_size(n), blas_size(k), 1,
              a, blas_size(lda), b, blas_size(ldb), beta, c, blas_size(ldc));
}

std::string gemm_f32_library() { return gemm_f64_library(); }  // OpenBLAS too

}  // namespace weft
