// The dropout mask with one row in each lane, for kernels whose vectors run across rows.
#pragma once

#include "ops/dropout/mask_vectors.h"

namespace weft {

namespace dropout_detail {

// The four words of the indices first, first + stride, …, one in each lane.
struct RowWords {
  Counters word[4];
};

HWY_INLINE RowWords draw_rows(const RandomKey& key, std::uint64_t first, std::uint64_t stride) {
  const simd::Tag<std::uint64_t> d;
  Counters c0 = hn::Add(product(hn::Iota(d, 0), stride), hn::Set(d, first));
  Counters c1 = hn::ShiftRight<32>(c0);
  Counters c2 = hn::Set(d, std::uint64_t{key.current_step()}),
           c3 = hn::Set(d, std::uint64_t{key.stream});
  auto key0 = static_cast<std::uint32_t>(key.seed),
       key1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Counters p0 = product(c0, 0xD2511F53u), p1 = product(c2, 0xCD9E8D57u);
    c0 = hn::Xor3(hn::ShiftRight<32>(p1), c1, hn::Set(d, std::uint64_t{key0}));
    c1 = p1;
    c2 = hn::Xor3(hn::ShiftRight<32>(p0), c3, hn::Set(d, std::uint64_t{key1}));
    c3 = p0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace dropout_detail

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
    constexpr auto half = static_cast<std::uint64_t>(simd::lanes<std::uint64_t>);
    const RowWords low = draw_rows(mask.key, first, stride);
    const RowWords high = draw_rows(mask.key, first + half * stride, stride);
    for (i64 i = 0; i < 4; ++i) {
      const auto words =
          hn::ConcatEven(d, hn::BitCast(d, high.word[i]), hn::BitCast(d, low.word[i]));
      f(2 * i, kept(hn::ShiftLeft<16>(words), threshold));
      f(2 * i + 1, kept(words, threshold));
    }
  } else {
    const simd::Tag<std::uint64_t> d;
    const auto threshold = hn::Set(d, static_cast<std::uint64_t>(mask.threshold) << 48);
    const RowWords rows = draw_rows(mask.key, first, stride);
    for (i64 i = 0; i < 4; ++i) {
      f(2 * i, kept(hn::ShiftLeft<48>(rows.word[i]), threshold));
      f(2 * i + 1, kept(hn::ShiftLeft<32>(rows.word[i]), threshold));
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
