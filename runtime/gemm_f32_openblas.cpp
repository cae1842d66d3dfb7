#include <cblas.h>

#include <fmt/core.h>

#include "runtime/gemm.h"

namespace weft {

void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
          const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
          std::int64_t ldc) {
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
              transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}

std::string gemm_f32_library() {
  return fmt::format("OpenBLAS {} ({})", OPENBLAS_VERSION, openblas_get_corename());
}

}  // namespace weft
