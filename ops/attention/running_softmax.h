// A softmax over keys that arrive tile by tile and are never all stored.
#pragma once

#include <cstdint>
#include <limits>

#include "runtime/simd.h"
#include "runtime/tile.h"

namespace weft {

enum class Base { e, two };

template <Base base, class T>
HWY_INLINE simd::Vector<T> power(simd::Vector<T> x) {
  return base == Base::two ? simd::exp2<T>(x) : simd::exp<T>(x);
}

// The update of `width` queries, one in each lane, by a tile of keys with scores z [keys, width]:
//
//     μ' = max(μ, max_j z_j)     w_j = exp(z_j − μ')     σ ← σ exp(μ − μ') + Σ_j w_j
//     o ← o exp(μ − μ')          o [M, width], in rows: the weighted sum of values so far
//
// A query that has seen no key yet has μ = −∞; its scores are −∞ and give 0. With Base::two the
// exponentials are powers of two, of scores that were multiplied by log₂e. score(j, i) is z_j of
// the lanes from i on; keep(j, i, w_j, w_{j+1}) takes weights of two keys, and keep(j, i, w_j) of a
// last one.
template <Base base, class T, class Score, class Keep>
HWY_INLINE void run_softmax_of(i64 keys, i64 width, i64 M, const Score& score, const Keep& keep,
                               T* maximum, T* sum, Rows<T> o) {
  namespace hn = simd::hn;
  const simd::Tag<T> d;
  const auto none = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (i64 i = 0; i < width; i += simd::lanes<T>) {
    const auto before = hn::LoadU(d, maximum + i);
    auto now = before;
    for (i64 j = 0; j < keys; ++j) now = hn::Max(now, score(j, i));
    const auto shift = hn::IfThenElse(hn::Eq(now, none), hn::Zero(d), now);
    auto total = hn::Zero(d);
    const auto weight = [&](i64 j) {
      const auto w = power<base, T>(hn::Sub(score(j, i), shift));
      total = hn::Add(total, w);
      return w;
    };
    i64 j = 0;
    for (; j + 1 < keys; j += 2) {
      const auto first = weight(j), second = weight(j + 1);
      keep(j, i, first, second);
    }
    if (j < keys) keep(j, i, weight(j));
    const auto correction = power<base, T>(hn::Sub(before, shift));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + i), correction, total), d, sum + i);
    hn::StoreU(now, d, maximum + i);
    if (hn::AllTrue(d, hn::Eq(before, now))) continue;
    for (i64 m = 0; m < M; ++m) {
      T* const at = o.data + m * o.row + i;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), correction), d, at);
    }
  }
}

// keep() of weights [keys, width] in memory.
template <class T>
struct StoredWeights {
  T* to;
  i64 width;
  void operator()(i64 j, i64 i, simd::Vector<T> weight) const {
    simd::hn::StoreU(weight, simd::Tag<T>{}, to + j * width + i);
  }
  void operator()(i64 j, i64 i, simd::Vector<T> first, simd::Vector<T> second) const {
    (*this)(j, i, first), (*this)(j + 1, i, second);
  }
};

// The same of scores in memory, which the weights replace if `store` says so.
template <Base base = Base::e, class T, bool store = true>
void run_softmax(i64 keys, i64 width, i64 M, T* z, T* maximum, T* sum, Rows<T> o) {
  const auto score = [&](i64 j, i64 i) {
    return simd::hn::LoadU(simd::Tag<T>{}, z + j * width + i);
  };
  if constexpr (store) {
    run_softmax_of<base, T>(keys, width, M, score, StoredWeights<T>{z, width}, maximum, sum, o);
  } else {
    run_softmax_of<base, T>(
        keys, width, M, score, [](auto...) {}, maximum, sum, o);
  }
}

}  // namespace weft
