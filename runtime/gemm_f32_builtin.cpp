#include "runtime/gemm.h"
#include "runtime/gemm_builtin.h"

namespace weft {

void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const float* a, i64 lda,
          const float* b, i64 ldb, float beta, float* c, i64 ldc) {
  gemm_builtin(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

std::string gemm_f32_library() { return "built-in"; }

}  // namespace weft
