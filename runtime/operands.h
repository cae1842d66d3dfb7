// The operands of tile_product() for storage of type S: rows, and weights that were computed.
//
// Numbers are operands themselves: rows [rows, width] serve products along their width and along
// the rows. bf16 goes in pairs along the depth of a product, and each depth has a copy of its own:
//
//     by_width [rows, ⌈width / 2⌉]     the numbers 2e and 2e + 1 of a row
//     by_row   [⌈rows / 2⌉, width]     the rows 2r and 2r + 1
//
// What has no second is paired with 0. Without AVX512-BF16, bf16 is widened where it is packed.
#pragma once

#include <array>
#include <cstring>
#include <type_traits>

#include "runtime/copy_rows.h"
#include "runtime/simd.h"
#include "runtime/tile.h"

namespace weft {

template <class S>
using Operand =
    std::conditional_t<std::is_same_v<S, bf16> && simd::has_bf16_dot, Bf16Pair, Accumulator<S>>;
template <class S>
inline constexpr bool in_pairs = std::is_same_v<Operand<S>, Bf16Pair>;

// Operands along a depth of n numbers.
template <class S>
constexpr i64 operands(i64 n) {
  return in_pairs<S> ? (n + 1) / 2 : n;
}

// x rounded to bf16, then y. Less than 2⁻¹²⁶ becomes 0.
template <class V>
HWY_INLINE __m512i rounded_two(V x, V y) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(y.raw, x.raw));
}

// The same as pairs: x in the lower halves and y in the upper ones.
template <class V>
HWY_INLINE auto as_pairs(__m512i two)
    -> simd::hn::Vec<simd::hn::RebindToSigned<simd::hn::DFromV<V>>> {
  alignas(64) static constexpr auto order = [] {
    std::array<std::uint16_t, 32> lanes{};
    for (std::uint16_t i = 0; i < 32; ++i) lanes[i] = i / 2 + i % 2 * 16;
    return lanes;
  }();
  return {_mm512_permutexvar_epi16(_mm512_load_si512(order.data()), two)};
}

template <class V>
HWY_INLINE auto rounded_pairs(V x, V y) {
  return as_pairs<V>(rounded_two(x, y));
}

// x rounded to bf16, lane by lane.
template <class V>
HWY_INLINE __m256i rounded_halves(V x) {
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.raw));
}

enum class Along { width, rows, both };

// x rounded to storage, where products take it as pairs; else x.
template <class S, class T = Accumulator<S>>
void round_computed(i64 count, T* x) {
  if constexpr (in_pairs<S>) {
    for (i64 i = 0; i < count; i += simd::lanes<T>) {
      const auto halves = rounded_halves(simd::load<T>(x + i, count - i));
      const auto wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
      simd::store<T>(simd::Vector<T>{_mm512_castsi512_ps(wide)}, x + i, count - i);
    }
  }
}

template <class S>
struct PackedRows {
  using T = Accumulator<S>;
  using O = Operand<S>;

  i64 width = 0;
  O *by_width = nullptr, *by_row = nullptr;  // null if not packed

  PackedRows() = default;

  static constexpr i64 size(i64 rows, i64 width, Along along) {
    if (!in_pairs<S>) return rows * width;
    return (along == Along::rows ? 0 : rows * operands<S>(width)) +
           (along == Along::width ? 0 : operands<S>(rows) * width);
  }

  // In `memory` of that size, which `next` is moved behind.
  PackedRows(i64 rows, i64 row_width, Along along, O*& next) : width(row_width) {
    if constexpr (in_pairs<S>) {
      if (along != Along::rows) by_width = next, next += rows * operands<S>(width);
      if (along != Along::width) by_row = next, next += operands<S>(rows) * width;
    } else {
      by_width = by_row = next, next += rows * width;
    }
  }

  // The first operands of a product along the width and along the rows, and the second of one along
  // the rows, from a row on. Along the rows it is even.
  Strided<O> along_width(i64 row) const {
    return {by_width + row * operands<S>(width), operands<S>(width), 1};
  }
  Strided<O> along_rows(i64 row) const { return {by_row + operands<S>(row) * width, 1, width}; }
  Rows<const O> rows_from(i64 row) const { return {by_row + operands<S>(row) * width, width}; }

  // Of numbers x [rows, row_width] that are computed: x itself, or room for their pairs along both.
  static constexpr i64 size_of_computed(i64 rows, i64 width) {
    return in_pairs<S> ? size(rows, width, Along::both) : 0;
  }
  PackedRows(T* x, i64 rows, i64 row_width, O*& next) : width(row_width) {
    if constexpr (in_pairs<S>) {
      *this = PackedRows(rows, row_width, Along::both, next);
    } else {
      by_width = by_row = x;
    }
  }
  // Rounds the first `count` numbers of the rows of x from the even row `first` on, where these are
  // not operands themselves.
  void round(Along along, const T* x, i64 first, i64 rows, i64 count) const {
    if constexpr (in_pairs<S>) {
      if (along != Along::rows) round_by_width(x, first, rows, count);
      if (along != Along::width) round_by_row(x, first, rows, count);
    }
  }

  // Rows that lie `row_stride` apart, their numbers `step`; see copy_rows(). Numbers are scaled,
  // pairs are not.
  void pack(i64 rows, T scale, const S* x, i64 row_stride, i64 step = 1, i64 there = 0) const {
    if (rows <= 0) return;
    if constexpr (!in_pairs<S>) {
      copy_rows(rows, width, scale, x, row_stride, step, by_width, width, i64{1}, there);
    } else {
      if (by_width != nullptr) pack_by_width(x, row_stride, step, rows);
      if (by_row != nullptr) pack_by_row(x, row_stride, step, rows);
    }
  }

  // Zeros in all rows from `row` on.
  void clear(i64 row, i64 rows) const {
    if (by_width != nullptr) {
      std::fill(by_width + row * operands<S>(width), by_width + rows * operands<S>(width), O(0));
    }
    if (in_pairs<S> && by_row != nullptr) {  // an odd last row was paired with 0
      std::fill(by_row + operands<S>(row) * width, by_row + operands<S>(rows) * width, O(0));
    }
  }

 private:
  static constexpr i64 ahead = 32;  // rows; those of a head are far apart

  static O pair_of(S first, S second) {
    return static_cast<O>(first.bits | static_cast<std::uint32_t>(second.bits) << 16);
  }

  void pack_by_width(const S* x, i64 row_stride, i64 step, i64 rows) const {
    const i64 each = operands<S>(width);
    for (i64 i = 0; i < rows; ++i, x += row_stride) {
      O* const to = by_width + i * each;
      if (i + ahead < rows) prefetch(x + ahead * row_stride, width);
      if (step == 1) {
        to[each - 1] = 0;
        std::memcpy(to, x, static_cast<std::size_t>(width) * sizeof(S));
        continue;
      }
      for (i64 e = 0; e < each; ++e) {
        to[e] = pair_of(x[2 * e * step], 2 * e + 1 < width ? x[(2 * e + 1) * step] : S());
      }
    }
  }

  void pack_by_row(const S* x, i64 row_stride, i64 step, i64 rows) const {
    namespace hn = simd::hn;
    const simd::Tag<std::int32_t> d;
    const hn::Rebind<std::uint16_t, decltype(d)> halves;
    const auto words = [&](const S* from) {
      return hn::PromoteTo(d, hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from)));
    };
    O* to = by_row;
    for (i64 i = 0; i < rows; i += 2, x += 2 * row_stride, to += width) {
      const S* const next = x + row_stride;
      if (i + ahead < rows) prefetch(x + ahead * row_stride, width);
      if (i + 1 + ahead < rows) prefetch(next + ahead * row_stride, width);
      const bool both = i + 1 < rows;
      i64 e = 0;
      for (; both && step == 1 && e + simd::lanes<O> <= width; e += simd::lanes<O>) {
        hn::StoreU(hn::Or(words(x + e), hn::ShiftLeft<16>(words(next + e))), d, to + e);
      }
      for (; e < width; ++e) to[e] = pair_of(x[e * step], both ? next[e * step] : S());
    }
  }

  void round_by_width(const T* x, i64 first, i64 rows, i64 count) const {
    for (i64 i = first; i < first + rows; ++i) {
      O* const to = by_width + i * operands<S>(width);
      for (i64 e = 0; e < count; e += simd::lanes<T>) {
        const i64 rest = count - e;
        const auto halves = rounded_halves(simd::load<T>(x + i * width + e, rest));
        if (rest >= simd::lanes<T>) {
          std::memcpy(to + e / 2, &halves, sizeof halves);
        } else {
          std::memcpy(to + e / 2, &halves, static_cast<std::size_t>(operands<S>(rest)) * sizeof(O));
        }
      }
    }
  }

  void round_by_row(const T* x, i64 first, i64 rows, i64 count) const {
    namespace hn = simd::hn;
    const simd::Tag<O> d;
    for (i64 i = first; i < first + rows; i += 2) {
      const T* const from = x + i * width;
      O* const to = by_row + i / 2 * width;
      for (i64 e = 0; e < count; e += simd::lanes<T>) {
        const i64 rest = count - e;
        const auto second =
            i + 1 < first + rows ? simd::load<T>(from + width + e, rest) : hn::Zero(simd::Tag<T>{});
        const auto pairs = rounded_pairs(simd::load<T>(from + e, rest), second);
        if (rest >= simd::lanes<O>) {
          hn::StoreU(pairs, d, to + e);
        } else {
          hn::BlendedStore(pairs, hn::FirstN(d, static_cast<std::size_t>(rest)), d, to + e);
        }
      }
    }
  }
};

// Takes weights of two keys, or of a last one, as the second operand of a product along the keys.
struct WeightsInPairs {
  Bf16Pair* to;
  i64 lanes;
  template <class V>
  HWY_INLINE void operator()(i64 j, i64 i, V first, V second) const {
    simd::hn::StoreU(rounded_pairs(first, second), simd::Tag<Bf16Pair>{}, to + j / 2 * lanes + i);
  }
  template <class V>
  HWY_INLINE void operator()(i64 j, i64 i, V last) const {
    (*this)(j, i, last, simd::hn::Zero(simd::Tag<float>{}));
  }
};

// Weights z [keys, lanes] as the second operand of a product along the keys; `to` is for pairs.
template <class S, class T = Accumulator<S>>
Rows<const Operand<S>> along_keys(const T* z, i64 keys, i64 lanes, Operand<S>* to) {
  if constexpr (!in_pairs<S>) {
    return {z, lanes};
  } else {
    namespace hn = simd::hn;
    const simd::Tag<T> d;
    for (i64 j = 0; j < keys; j += 2) {
      for (i64 i = 0; i < lanes; i += simd::lanes<T>) {
        const T* const at = z + j * lanes + i;
        const auto second = j + 1 < keys ? hn::LoadU(d, at + lanes) : hn::Zero(d);
        WeightsInPairs{to, lanes}(j, i, hn::LoadU(d, at), second);
      }
    }
    return {to, lanes};
  }
}

// Weights z [keys, lanes] as the first operand of a product along the queries.
template <class S, class T = Accumulator<S>>
Strided<Operand<S>> along_queries(const T* z, i64 keys, i64 lanes, Operand<S>* to) {
  if constexpr (!in_pairs<S>) {
    return {z, lanes, 1};
  } else {
    const simd::Tag<T> d;
    for (i64 i = 0; i < keys * lanes; i += simd::lanes<T>) {
      const auto half = rounded_halves(simd::hn::LoadU(d, z + i));
      std::memcpy(to + i / 2, &half, sizeof half);
    }
    return {to, lanes / 2, 1};
  }
}

}  // namespace weft
