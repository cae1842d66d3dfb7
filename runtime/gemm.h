// The matrix product of a library: c = a b + beta c on the calling thread, row-major.
//
// meson links one implementation for each type: oneDNN or OpenBLAS for f32, OpenBLAS for f64, and
// where a library is missing the blocked product of gemm_builtin.h.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

// a is [m, k] with rows `lda` apart (or [k, m] where transpose_a), b is [k, n] likewise.
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
          const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
          std::int64_t ldc);
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
          const double* a, std::int64_t lda, const double* b, std::int64_t ldb, double beta,
          double* c, std::int64_t ldc);

std::string gemm_f32_library();
std::string gemm_f64_library();

}  // namespace weft
