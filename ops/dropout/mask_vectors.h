// The dropout mask, a vector of a row's elements at a time.
#pragma once

#include <algorithm>

#include "ops/dropout/mask.h"
#include "runtime/simd.h"

namespace weft {

namespace dropout_detail {

namespace hn = simd::hn;
// Lanes hold 32-bit values; their upper halves are ignored.
using Counters = simd::Vector<std::uint64_t>;

// The upper halves of the products of the lower halves, and the products (their lower halves).
HWY_INLINE Counters product(Counters a, std::uint64_t multiplier) {
  const simd::Tag<std::uint64_t> d;
  const hn::Repartition<std::uint32_t, decltype(d)> words;
  return hn::MulEven(hn::BitCast(words, a), hn::BitCast(words, hn::Set(d, multiplier)));
}

// The four words of an index in each lane.
struct Words {
  Counters word[4];
};

// The words of the indices first, first + stride, …: philox() of runtime/random.h, with G vectors
// of indices in flight. stride < 2³².
template <int G>
HWY_INLINE void draw(const RandomKey& key, std::uint64_t first, std::uint64_t stride,
                     Words (&words)[G]) {
  const simd::Tag<std::uint64_t> d;
  constexpr std::uint64_t n = simd::lanes<std::uint64_t>;
  for (std::uint64_t g = 0; g < G; ++g) {
    const Counters index =
        hn::Add(product(hn::Iota(d, 0), stride), hn::Set(d, first + g * n * stride));
    words[g] = {{index, hn::ShiftRight<32>(index), hn::Set(d, std::uint64_t{key.current_step()}),
                 hn::Set(d, std::uint64_t{key.stream})}};
  }
  auto key0 = static_cast<std::uint32_t>(key.seed),
       key1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Counters k0 = hn::Set(d, std::uint64_t{key0}), k1 = hn::Set(d, std::uint64_t{key1});
    for (int g = 0; g < G; ++g) {
      Counters(&c)[4] = words[g].word;
      const Counters p0 = product(c[0], 0xD2511F53u), p1 = product(c[2], 0xCD9E8D57u);
      c[0] = hn::Xor3(hn::ShiftRight<32>(p1), c[1], k0);
      c[1] = p1;
      c[2] = hn::Xor3(hn::ShiftRight<32>(p0), c[3], k1);
      c[3] = p0;
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

// Writes the 8 pieces of the indices first … first + G·lanes − 1, in order.
template <int G>
HWY_INLINE void draw(const RandomKey& key, std::uint64_t first, std::uint16_t* to) {
  const simd::Tag<std::uint64_t> d;
  const hn::Repartition<std::uint32_t, decltype(d)> halves;
  constexpr i64 n = simd::lanes<std::uint64_t>;
  Words words[G];
  draw(key, first, 1, words);
  const auto paired = [&](Counters low, Counters high) {
    return hn::BitCast(
        d, hn::OddEven(hn::BitCast(halves, hn::ShiftLeft<32>(high)), hn::BitCast(halves, low)));
  };
  for (int g = 0; g < G; ++g) {
    const Counters(&c)[4] = words[g].word;
    hn::StoreInterleaved2(paired(c[0], c[1]), paired(c[2], c[3]), d,
                          reinterpret_cast<std::uint64_t*>(to) + 2 * n * g);
  }
}

}  // namespace dropout_detail

// to[j] = from[j] · factor where (row, begin + j) is kept, otherwise 0, for j < count. `begin` is a
// multiple of 8; `from` and `to` may be the same.
template <class S>
void apply_dropout(const DropoutMask& mask, i64 row, i64 begin, i64 count, const S* from, S* to) {
  namespace hn = simd::hn;
  using T = Accumulator<S>;
  using Signed = hwy::MakeSigned<T>;
  constexpr i64 n = simd::lanes<std::uint64_t>, lanes = simd::lanes<T>;
  constexpr i64 per_vector = n * DropoutMask::pieces, block = 4 * per_vector;
  const simd::Tag<T> d;
  const hn::Rebind<Signed, simd::Tag<T>> integers;
  const hn::Rebind<std::int32_t, simd::Tag<T>> words;
  const hn::Rebind<std::uint16_t, simd::Tag<T>> halves;
  const auto threshold = hn::Set(integers, static_cast<Signed>(mask.threshold));
  const auto factor = hn::Set(d, static_cast<T>(mask.factor));
  HWY_ALIGN std::uint16_t pieces[block];
  for (i64 j = 0; j < count; j += block) {
    const std::uint64_t index = mask.index(row, begin + j);
    const i64 wanted = std::min(block, count - j);
    if (wanted > block / 2) {
      dropout_detail::draw<4>(mask.key, index, pieces);
    } else if (wanted > per_vector) {
      dropout_detail::draw<2>(mask.key, index, pieces);
    } else {
      dropout_detail::draw<1>(mask.key, index, pieces);
    }
    for (i64 i = 0; i < wanted; i += lanes) {
      auto piece = hn::PromoteTo(words, hn::LoadU(halves, pieces + i));
      const auto x = simd::load(from + j + i, wanted - i);
      const auto dropped = [&] {
        if constexpr (std::is_same_v<T, double>) {
          return hn::Lt(hn::PromoteTo(integers, piece), threshold);
        } else {
          return hn::Lt(piece, threshold);
        }
      }();
      const auto kept = hn::IfThenZeroElse(hn::RebindMask(d, dropped), hn::Mul(x, factor));
      simd::store<S>(kept, to + j + i, wanted - i);
    }
  }
}

}  // namespace weft
