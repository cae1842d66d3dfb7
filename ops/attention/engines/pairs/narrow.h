// Pairs for heads of eight numbers: one vector of queries, one in each lane, against a tile of
// keys. The query side (q, do, the output, dq) stays in registers while keys stream by. Forward
// stores the scores of one vector of queries, whose maximum it needs first; in backward a score
// passes through the exponential to its products without being stored. The equations are in
// pairs.h. Scores are in units of ln 2, as in pairs_tile_cpu.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/simd.h"
#include "runtime/tile.h"

namespace weft::narrow {

inline constexpr int width = 8;
inline constexpr i64 most_keys = 128;  // of a tile

// q, do and dq, and the temporaries of the exponential, need 32 registers.
template <class T>
constexpr bool possible(i64 E, i64 M) {
  return HWY_MAX_BYTES >= 64 && std::is_same_v<T, float> && E == width && M == width;
}

// Keys k [keys, 8] and values v [keys, 8] of a tile. Bit `bit` + i of seen[j] says whether lane i
// sees key j. Keys whole_from … whole_to − 1 are seen by all lanes. Without words lane i sees the
// whole_to keys that lane 0 sees, and i more: all of them, or the diagonal of a causal mask.
template <class T>
struct Keys {
  const T *k, *v;
  i64 count;
  const std::uint64_t* seen;
  i64 bit, whole_from = 0, whole_to = 0;

  // Sets the range of keys that all lanes see: the first such range.
  void find_whole() {
    const auto all = [&](i64 j) {
      constexpr auto lanes = (std::uint64_t{1} << simd::lanes<T>) - 1;
      return (seen[j] >> bit & lanes) == lanes;
    };
    while (whole_from < count && !all(whole_from)) ++whole_from;
    whole_to = whole_from;
    while (whole_to < count && all(whole_to)) ++whole_to;
  }
};

// Dropout policies: none, or a bit mask per key, with the scale. All also stands for the mask of a
// key that every lane sees.
struct All {
  template <class V>
  HWY_INLINE V of(i64, V x) const {
    return x;
  }
};
template <class M>
constexpr bool is_all = std::is_same_v<M, All>;
template <class T>
struct Kept {
  Rows<const std::uint8_t> bits;
  T factor;
  template <class V>
  HWY_INLINE V of(i64 j, V x) const {
    namespace hn = simd::hn;
    const simd::Tag<T> d;
    const auto mask = hn::LoadMaskBits(d, bits.data + j * bits.row);
    return hn::Mul(x, hn::IfThenElseZero(mask, hn::Set(d, factor)));
  }
};

// Σ_e x_e y_e + start, for eight vectors and eight numbers; two accumulators halve the latency
// chain.
template <class V, class T>
HWY_INLINE V dot(const V (&x)[width], const T* y, V start) {
  namespace hn = simd::hn;
  const simd::Tag<T> d;
  V other = hn::Mul(x[width / 2], hn::Set(d, y[width / 2]));
  for (int e = 0; e < width / 2; ++e) start = hn::MulAdd(x[e], hn::Set(d, y[e]), start);
  for (int e = width / 2 + 1; e < width; ++e) other = hn::MulAdd(x[e], hn::Set(d, y[e]), other);
  return hn::Add(start, other);
}

// y_e += x z_e
template <class V, class T>
HWY_INLINE void add_outer(V x, const T* z, V (&y)[width]) {
  const simd::Tag<T> d;
  for (int e = 0; e < width; ++e) y[e] = simd::hn::MulAdd(x, simd::hn::Set(d, z[e]), y[e]);
}

template <class V, class T>
HWY_INLINE void load(Rows<T> from, V (&to)[width]) {
  const simd::Tag<std::remove_const_t<T>> d;
  for (int e = 0; e < width; ++e) to[e] = simd::hn::LoadU(d, from.data + e * from.row);
}

template <class V, class T>
HWY_INLINE void store(const V (&from)[width], Rows<T> to) {
  const simd::Tag<T> d;
  for (int e = 0; e < width; ++e) simd::hn::StoreU(from[e], d, to.data + e * to.row);
}

// f(j, mask) for all keys: `mask` holds the lanes that see key j, or is All.
template <class T, class F>
HWY_INLINE void each_key(const Keys<T>& keys, const F& f) {
  const auto by_words = [&](i64 from, i64 to) {
    for (i64 j = from; j < to; ++j) f(j, simd::mask_of_bits<T>(keys.seen[j] >> keys.bit));
  };
  by_words(0, keys.whole_from);
  for (i64 j = keys.whole_from; j < keys.whole_to; ++j) f(j, All{});
  if (keys.seen != nullptr) return by_words(keys.whole_to, keys.count);
  std::uint64_t lanes = ~std::uint64_t{1};
  for (i64 j = keys.whole_to; j < keys.count; ++j, lanes <<= 1) f(j, simd::mask_of_bits<T>(lanes));
}

// Updates the running maximum, the sum and the output o [8, lanes] of one vector of queries q [8,
// lanes] by a tile of keys; see running_softmax.h. z [keys, lanes] is scratch memory.
template <class T, class Left>
HWY_NOINLINE void forward(Keys<T> keys, Left left, Rows<const T> q, T* z, T* maximum, T* sum,
                          Rows<T> o) {
  namespace hn = simd::hn;
  using V = simd::Vector<T>;
  const simd::Tag<T> d;
  const V none = hn::Set(d, -std::numeric_limits<T>::infinity());
  const V before = hn::LoadU(d, maximum);
  V now = before, x[width];
  load(q, x);
  each_key(keys, [&](i64 j, auto mask) {
    V score = dot(x, keys.k + j * width, hn::Zero(d));
    if constexpr (!is_all<decltype(mask)>) score = hn::IfThenElse(mask, score, none);
    hn::StoreU(score, d, z + j * simd::lanes<T>);
    now = hn::Max(now, score);
  });
  const V shift = hn::IfThenElse(hn::Eq(now, none), hn::Zero(d), now);
  const V correction = simd::exp2<T>(hn::Sub(before, shift));
  V total = hn::Mul(hn::LoadU(d, sum), correction), y[width];
  load(o, y);
  for (int e = 0; e < width; ++e) y[e] = hn::Mul(y[e], correction);
  for (i64 j = 0; j < keys.count; ++j) {
    const V weight = simd::exp2<T>(hn::Sub(hn::LoadU(d, z + j * simd::lanes<T>), shift));
    total = hn::Add(total, weight);
    add_outer(left.of(j, weight), keys.v + j * width, y);
  }
  hn::StoreU(now, d, maximum);
  hn::StoreU(total, d, sum);
  store(y, o);
}

// The gradients of one vector of queries and a tile of keys: d ⊙ a and dz [keys, lanes], row-major,
// and dq [8, lanes] += dz k.
template <class T, class Left>
HWY_NOINLINE void backward(Keys<T> keys, Left left, Rows<const T> q, Rows<const T> dout,
                           const T* log_sum, const T* delta, Rows<T> a, Rows<T> dz, Rows<T> dq) {
  namespace hn = simd::hn;
  using V = simd::Vector<T>;
  const simd::Tag<T> d;
  const V scores_from = hn::Neg(hn::LoadU(d, log_sum)), mean = hn::LoadU(d, delta);
  V x[width], y[width], gradient[width];
  load(q, x), load(dout, y), load(dq, gradient);
  each_key(keys, [&](i64 j, auto mask) {
    V weight = simd::exp2<T>(dot(x, keys.k + j * width, scores_from));
    if constexpr (!is_all<decltype(mask)>) weight = hn::IfThenElseZero(mask, weight);
    hn::StoreU(left.of(j, weight), d, a.data + j * a.row);
    const V dweight = left.of(j, dot(y, keys.v + j * width, hn::Zero(d)));
    const V slope = hn::Mul(weight, hn::Sub(dweight, mean));
    hn::StoreU(slope, d, dz.data + j * dz.row);
    add_outer(slope, keys.k + j * width, gradient);
  });
  store(gradient, dq);
}

}  // namespace weft::narrow
