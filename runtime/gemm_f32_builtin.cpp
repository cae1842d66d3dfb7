#include "runtime/gemm.h"
#include "runtime/gemm_builtin.h"

namespace weft {

void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
          const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
          std::int64_t ldc) {
  gemm_builtin(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

std::string gemm_f32_library() { return "built-in"; }

}  // namespace weft
