#include <cblas.h>

#include "runtime/gemm.h"
#include "runtime/openblas_name.h"

namespace weft {

void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const double* a, i64 lda,
          const double* b, i64 ldb, double beta, double* c, i64 ldc) {
  cblas_dgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

std::string gemm_f64_library() { return openblas_name(); }

}  // namespace weft
