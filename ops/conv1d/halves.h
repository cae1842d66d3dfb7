// Correlations with fewer products, by halving them.
// S. Winograd, "Arithmetic complexity of computations", SIAM 1980: F(2, 2), the numbers matrices.
//
// For rows x_t and an even number of taps w_a, the rows (x ∗ w)_t = Σ_a x_{t+a} w_a at even and at
// odd t are, with x₀, x₁, x₂ the rows 0, 2, … and 1, 3, … and 2, 4, … of x and with e, o the even
// and the odd taps,
//
//     (x ∗ w)_even = x₁ ∗ (e + o) + (x₀ − x₁) ∗ e
//     (x ∗ w)_odd  = x₁ ∗ (e + o) + (x₂ − x₁) ∗ o
//
// three correlations of half the rows and half the taps, where there were four. Doing it again with
// each of the three leaves 9/16 of the products; the sums cost little beside them.
//
// For the weights' gradient, with g the rows that are the gradient of x ∗ w, the transpose:
//
//     de = x₁ᵀ ∗ (g_even + g_odd) + (x₀ − x₁)ᵀ ∗ g_even
//     do = x₁ᵀ ∗ (g_even + g_odd) + (x₂ − x₁)ᵀ ∗ g_odd
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/pack.h"

namespace weft {

// A list of sequences of `rows` rows, each `width` numbers, that halving makes three times as long.
// It keeps its memory from one use to the next.
template <class T>
class Halves {
 public:
  std::int64_t count = 0, rows = 0, width = 0;

  // `count` sequences of any content.
  void start(std::int64_t new_count, std::int64_t new_rows, std::int64_t new_width) {
    width = new_width;
    become(new_count, new_rows);
  }
  T* operator[](std::int64_t i) { return now_.data() + i * rows * width; }
  std::int64_t size() const { return count * rows * width; }

  // x → x₁, x₀ − x₁, x₂ − x₁; x has an odd number of rows.
  void split_windows() {
    halve((rows - 1) / 2,
          [](auto x0, auto x1, auto x2, const auto& to) { to(x1, x0 - x1, x2 - x1); });
  }
  // w → e + o, e, o, for taps, and for rows of gradients.
  void split_pairs() {
    halve(rows / 2, [](auto even, auto odd, auto, const auto& to) { to(even + odd, even, odd); });
  }
  // a, b, c → a + b and a + c in turn: what split_pairs is the transpose of.
  void merge() {
    const std::int64_t step = rows * width;
    spare_.resize(static_cast<std::size_t>(count / 3 * 2 * step));
    T* to = spare_.data();
    for (std::int64_t i = 0; i < count; i += 3) {
      const T* from = (*this)[i];
      for (std::int64_t t = 0; t < rows; ++t, from += width, to += 2 * width) {
        each_pack<T>(width, [&](std::int64_t e, std::int64_t n) {
          const auto both = Pack<T>::load(from + e, n);
          (both + Pack<T>::load(from + step + e, n)).store(to + e, n);
          (both + Pack<T>::load(from + 2 * step + e, n)).store(to + width + e, n);
        });
      }
    }
    now_.swap(spare_);
    become(count / 3, 2 * rows);
  }

 private:
  // f sees rows 2t, 2t + 1 and, where there is one, 2t + 2, and gives row t of three sequences.
  template <class F>
  void halve(std::int64_t half, const F& f) {
    const std::int64_t step = half * width;
    spare_.resize(static_cast<std::size_t>(3 * count * step));
    T* to = spare_.data();
    for (std::int64_t i = 0; i < count; ++i, to += 2 * step) {
      const T* from = (*this)[i];
      for (std::int64_t t = 0; t < half; ++t, from += 2 * width, to += width) {
        const std::int64_t third = 2 * t + 2 < rows ? 2 * width : width;
        each_pack<T>(width, [&](std::int64_t e, std::int64_t n) {
          f(Pack<T>::load(from + e, n), Pack<T>::load(from + width + e, n),
            Pack<T>::load(from + third + e, n), [&](auto a, auto b, auto c) {
              a.store(to + e, n);
              b.store(to + step + e, n);
              c.store(to + 2 * step + e, n);
            });
        });
      }
    }
    now_.swap(spare_);
    become(3 * count, half);
  }
  void become(std::int64_t new_count, std::int64_t new_rows) {
    count = new_count;
    rows = new_rows;
    const auto wanted = static_cast<std::size_t>(size());
    if (now_.size() < wanted) now_.resize(wanted);
  }

  std::vector<T> now_, spare_;
};

}  // namespace weft
