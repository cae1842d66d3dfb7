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

PreparedRight::PreparedRight(bool transposed, i64 k, i64 n, const bf16* b, i64 ldb)
    : transposed_(transposed), k_(k), n_(n), b_(b), ldb_(ldb) {}

template <class C>
void PreparedRight::multiply(i64 m, const bf16* a, i64 lda, const float* bias, C* c,
                             i64 ldc) const {
  gemm_converted(transposed_, m, n_, k_, a, lda, b_, ldb_, bias, c, ldc);
}

template void PreparedRight::multiply(i64, const bf16*, i64, const float*, float*, i64) const;
template void PreparedRight::multiply(i64, const bf16*, i64, const float*, bf16*, i64) const;

bool gemm_bf16_is_native() { return false; }
std::string gemm_bf16_library() { return "by f32"; }

}  // namespace weft
