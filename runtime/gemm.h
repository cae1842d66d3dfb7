// The matrix product of a library: c = a b + beta c on the calling thread, row-major.
//
// meson links one implementation for each type: oneDNN or OpenBLAS for f32, OpenBLAS for f64,
// oneDNN for bf16, and where a library is missing the blocked product of gemm_builtin.h; bf16 is
// computed in f32 then.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "runtime/dtype.h"
#include "runtime/error.h"
#include "runtime/types.h"

namespace weft {

// a is [m, k] with rows `lda` apart (or [k, m] where transpose_a), b is [k, n] likewise.
void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const float* a, i64 lda,
          const float* b, i64 ldb, float beta, float* c, i64 ldc);
void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const double* a, i64 lda,
          const double* b, i64 ldb, double beta, double* c, i64 ldc);

// Operands in bf16, summed in f32; a c in bf16 is rounded once, with what was there. C is float or
// bf16, beta 0 or 1.
template <class C>
void gemm(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const bf16* a, i64 lda,
          const bf16* b, i64 ldb, float beta, C* c, i64 ldc);
// b [k, n] (or [n, k] where `transposed`) of products in bf16, in the layout that the library
// multiplies by. A library that is given b as it lies copies it for every block of rows.
class PreparedRight {
 public:
  PreparedRight(bool transposed, i64 k, i64 n, const bf16* b, i64 ldb);  // b is kept by reference

  // c [m, n] = a [m, k] b + bias, summed in f32 and rounded once; the bias [n] may be null.
  template <class C>
  void multiply(i64 m, const bf16* a, i64 lda, const float* bias, C* c, i64 ldc) const;

 private:
  struct Layout;  // of the library
  bool transposed_;
  i64 k_, n_;
  const bf16* b_;
  i64 ldb_;
  std::shared_ptr<const Layout> layout_ = {};  // null: b as it lies
};
// Whether this processor multiplies in bf16; if not, operands are converted to f32.
bool gemm_bf16_is_native();

// A size of a matrix for OpenBLAS, which counts by int.
inline int blas_size(i64 n) {
  require(n <= std::numeric_limits<int>::max(),
          "matmul: OpenBLAS takes matrices of up to {} rows and columns, got {}",
          std::numeric_limits<int>::max(), n);
  return static_cast<int>(n);
}

std::string gemm_f32_library();
std::string gemm_f64_library();
std::string gemm_bf16_library();

}  // namespace weft
