// Products in bf16 by way of f32, for processors without instructions for them: the operands are
// widened, multiplied and summed in f32, and the result is rounded once.
#pragma once

#include <type_traits>

#include "runtime/copy_rows.h"
#include "runtime/gemm.h"
#include "runtime/scratch.h"

namespace weft {

template <class From, class To>
void convert_rows(i64 rows, i64 columns, const From* from, i64 from_row, To* to, i64 to_row) {
  for (i64 i = 0; i < rows; ++i) convert_all(columns, from + i * from_row, to + i * to_row);
}

template <class C>
void gemm_converted(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const bf16* a, i64 lda,
                    const bf16* b, i64 ldb, float beta, C* c, i64 ldc) {
  if (k == 0) {  // libraries refuse it
    if (beta == 0) fill_rows<float>(m, n, nullptr, c, ldc);
    return;
  }
  const auto widened = [](const Scratch<float>& to, i64 rows, i64 columns, const bf16* from,
                          i64 row) {
    convert_rows(rows, columns, from, row, to.data(), columns);
    return to.data();
  };
  const i64 width_a = transpose_a ? m : k, width_b = transpose_b ? k : n;
  const Scratch<float> space_a(m * k), space_b(k * n);
  const float* const left = widened(space_a, transpose_a ? k : m, width_a, a, lda);
  const float* const right = widened(space_b, transpose_b ? n : k, width_b, b, ldb);
  if constexpr (std::is_same_v<C, float>) {
    gemm(transpose_a, transpose_b, m, n, k, left, width_a, right, width_b, beta, c, ldc);
  } else {
    const Scratch<float> sums(m * n);
    if (beta != 0) convert_rows(m, n, c, ldc, sums.data(), n);
    gemm(transpose_a, transpose_b, m, n, k, left, width_a, right, width_b, beta, sums.data(), n);
    convert_rows(m, n, sums.data(), n, c, ldc);
  }
}

// The same with a bias [n], which may be null.
template <class C>
void gemm_converted(bool transpose_b, i64 m, i64 n, i64 k, const bf16* a, i64 lda, const bf16* b,
                    i64 ldb, const float* bias, C* c, i64 ldc) {
  if constexpr (std::is_same_v<C, float>) {
    fill_rows(m, n, bias, c, ldc);
    gemm_converted(false, transpose_b, m, n, k, a, lda, b, ldb, 1, c, ldc);
  } else {
    const Scratch<float> sums(m * n);
    gemm_converted(transpose_b, m, n, k, a, lda, b, ldb, bias, sums.data(), n);
    convert_rows(m, n, sums.data(), n, c, ldc);
  }
}

}  // namespace weft
