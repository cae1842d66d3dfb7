// Correlations with fewer products, by two levels of halving.
// S. Winograd, "Arithmetic complexity of computations", SIAM 1980: F(2, 2), for matrices.
//
// For rows x_t and an even number of taps w_a, the rows (x ∗ w)_t = Σ_a x_{t+a} w_a at even and at
// odd t are, with x₀, x₁, x₂ the rows 0, 2, … and 1, 3, … and 2, 4, … of x and with e, o the even
// and the odd taps,
//
//     (x ∗ w)_even = x₁ ∗ (e + o) + (x₀ − x₁) ∗ e
//     (x ∗ w)_odd  = x₁ ∗ (e + o) + (x₂ − x₁) ∗ o
//
// three correlations with half the rows and half the taps, instead of four. Halving each of them
// again leaves nine with a quarter: 9/16 of the products. The sums are cheap compared with them.
//
// For the weights' gradient, with g the rows of the gradient of x ∗ w, the transpose:
//
//     de = x₁ᵀ ∗ (g_even + g_odd) + (x₀ − x₁)ᵀ ∗ g_even
//     do = x₁ᵀ ∗ (g_even + g_odd) + (x₂ − x₁)ᵀ ∗ g_odd
//
// So there are three steps: windows and pairs (of taps, or of g) are split, multiplied, and the
// products are merged, which is the transpose of splitting pairs. The nine parts, `rows` rows each
// and contiguous, cover 4 · rows + the rest of the last window; row_of(t) points to row t of these,
// `width` numbers.
#pragma once

#include <cstdint>

#include "runtime/pack.h"

namespace weft::halves {

inline constexpr i64 parts = 9;

// Part 3i + j is the result of halving i, then j: x₁, x₀ − x₁ and x₂ − x₁. Reads rows
// 0 … 4 · rows + 2.
template <class T, class RowOf>
void split_windows(i64 rows, i64 width, const RowOf& row_of, T* to) {
  for (i64 t = 0; t < rows; ++t) {
    const T *const r0 = row_of(4 * t), *const r1 = row_of(4 * t + 1), *const r2 = row_of(4 * t + 2);
    const T *const r3 = row_of(4 * t + 3), *const r4 = row_of(4 * t + 4);
    const T *const r5 = row_of(4 * t + 5), *const r6 = row_of(4 * t + 6);
    each_pack<T>(width, [&](i64 e, i64 n) {
      const auto at = [&](const T* row) { return Pack<T>::load(row + e, n); };
      const auto put = [&](i64 i, auto a, auto b, auto c) {
        T* const y = to + (i * rows + t) * width + e;
        b.store(y, n);
        (a - b).store(y + rows * width, n);
        (c - b).store(y + 2 * rows * width, n);
      };
      const auto x1 = at(r1), x2 = at(r2), x3 = at(r3), x4 = at(r4), x5 = at(r5);
      put(0, x1, x3, x5);
      put(3, at(r0) - x1, x2 - x3, x4 - x5);
      put(6, x2 - x1, x4 - x3, at(r6) - x5);
    });
  }
}

// Part 3i + j: e + o, e and o. Reads rows 0 … 4 · rows − 1.
template <class T, class RowOf>
void split_pairs(i64 rows, i64 width, const RowOf& row_of, T* to) {
  for (i64 t = 0; t < rows; ++t) {
    const T *const r0 = row_of(4 * t), *const r1 = row_of(4 * t + 1), *const r2 = row_of(4 * t + 2);
    const T* const r3 = row_of(4 * t + 3);
    each_pack<T>(width, [&](i64 e, i64 n) {
      const auto at = [&](const T* row) { return Pack<T>::load(row + e, n); };
      const auto put = [&](i64 i, auto a, auto b) {
        T* const y = to + (i * rows + t) * width + e;
        (a + b).store(y, n);
        a.store(y + rows * width, n);
        b.store(y + 2 * rows * width, n);
      };
      const auto x0 = at(r0), x1 = at(r1), x2 = at(r2), x3 = at(r3);
      put(0, x0 + x1, x2 + x3);
      put(3, x0, x2);
      put(6, x1, x3);
    });
  }
}

// Calls put(t, e, n, sums) for vectors at element e of rows t = 0 … 4 · rows − 1, in any order.
template <class T, class Put>
void merge(i64 rows, i64 width, const T* from, const Put& put) {
  for (i64 t = 0; t < rows; ++t) {
    each_pack<T>(width, [&](i64 e, i64 n) {
      const auto at = [&](i64 i) { return Pack<T>::load(from + (i * rows + t) * width + e, n); };
      const auto both = at(0), even = at(3), odd = at(6);
      const auto first = both + at(1), second = both + at(2);
      put(4 * t, e, n, first + (even + at(4)));
      put(4 * t + 1, e, n, first + (odd + at(7)));
      put(4 * t + 2, e, n, second + (even + at(5)));
      put(4 * t + 3, e, n, second + (odd + at(8)));
    });
  }
}

}  // namespace weft::halves
