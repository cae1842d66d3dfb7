// The dropout mask with one row in each lane, for kernels whose vectors run across rows.
#pragma once

#include "ops/dropout/mask_vectors.h"

namespace weft {

// Lanes are the rows row, row + step, …; calls f(i, mask of T) for the eight columns column + i;
// `column` is a multiple of eight.
template <Real T, class F>
HWY_INLINE void each_kept(const DropoutMask& mask, i64 row, i64 step, i64 column, const F& f) {
  namespace hn = simd::hn;
  using namespace dropout_detail;
  const std::uint64_t first = mask.index(row, column);
  const auto stride = static_cast<std::uint64_t>(step * mask.indices_of_row());
  const auto kept = [](auto piece, auto threshold) {
    return hn::RebindMask(simd::Tag<T>{}, hn::Not(hn::Lt(piece, threshold)));
  };
  if constexpr (std::is_same_v<T, float>) {
    // Two vectors of 64-bit lanes are packed into one of 32-bit words. A piece is compared in the
    // upper half of its word; the lower half cannot change the result.
    const simd::Tag<std::uint32_t> d;
    const auto threshold = hn::Set(d, static_cast<std::uint32_t>(mask.threshold) << 16);
    Words halves[2];
    draw(mask.key, first, stride, halves);
    for (i64 i = 0; i < 4; ++i) {
      const auto words =
          hn::ConcatEven(d, hn::BitCast(d, halves[1].word[i]), hn::BitCast(d, halves[0].word[i]));
      f(2 * i, kept(hn::ShiftLeft<16>(words), threshold));
      f(2 * i + 1, kept(words, threshold));
    }
  } else {
    const simd::Tag<std::uint64_t> d;
    const auto threshold = hn::Set(d, static_cast<std::uint64_t>(mask.threshold) << 48);
    Words rows[1];
    draw(mask.key, first, stride, rows);
    for (i64 i = 0; i < 4; ++i) {
      f(2 * i, kept(hn::ShiftLeft<48>(rows[0].word[i]), threshold));
      f(2 * i + 1, kept(hn::ShiftLeft<32>(rows[0].word[i]), threshold));
    }
  }
}

// x [columns, lanes] times the mask: lane i is row + i, and the first column, `column`, is a
// multiple of eight. `lanes` is a multiple of the vector length.
template <Real T>
void drop_rows(const DropoutMask& mask, i64 row, i64 lanes, i64 column, i64 columns, T* x) {
  namespace hn = simd::hn;
  const simd::Tag<T> d;
  const auto factor = hn::Set(d, static_cast<T>(mask.factor));
  for (i64 lane = 0; lane < lanes; lane += simd::lanes<T>) {
    for (i64 j = 0; j < columns; j += DropoutMask::pieces) {
      each_kept<T>(mask, row + lane, 1, column + j, [&](i64 i, auto kept) {
        if (j + i >= columns) return;
        T* const at = x + (j + i) * lanes + lane;
        hn::StoreU(hn::IfThenElseZero(kept, hn::Mul(factor, hn::LoadU(d, at))), d, at);
      });
    }
  }
}

}  // namespace weft
