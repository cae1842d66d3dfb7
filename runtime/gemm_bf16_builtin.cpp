#include "runtime/gemm.h"
#include "runtime/gemm_bf16_converted.h"

namespace weft {

template <class C>
void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const bf16* a, i64 lda,
          const bf16* b, i64 ldb, float beta, C* c, i64 ldc) {
  gemm_converted(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

template void gemm(bool, bool, i64, i64, i64, const bf16*, i64, const bf16*, i64, float, float*,
                   i64);
template void gemm(bool, bool, i64, i64, i64, const bf16*, i64, const bf16*, i64, float, bf16*,
                   i64);

bool gemm_bf16_is_native() { return false; }
std::string gemm_bf16_library() { return "by f32"; }

}  // namespace weft
