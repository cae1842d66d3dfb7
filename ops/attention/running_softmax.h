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
//     μ' = max(μ, max_j z_j)     z_j ← exp(z_j − μ')     σ ← σ exp(μ − μ') + Σ_j z_j
//     o ← o exp(μ − μ')          o [M, width], in rows: the weighted sum of values so far
//
// A query that has seen no key yet has μ = −∞; its scores are −∞ and give 0. With Base::two the
// exponentials are powers of two, of scores that were multiplied by log₂e. Without `store` z is
// unchanged.
template <Base base = Base::e, class T, bool store = true>
void run_softmax(i64 keys, i64 width, i64 M, T* z, T* maximum, T* sum, Rows<T> o) {
  namespace hn = simd::hn;
  const simd::Tag<T> d;
  const auto none = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (i64 i = 0; i < width; i += simd::lanes<T>) {
    const auto before = hn::LoadU(d, maximum + i);
    auto now = before;
    for (i64 j = 0; j < keys; ++j) now = hn::Max(now, hn::LoadU(d, z + j * width + i));
    const auto shift = hn::IfThenElse(hn::Eq(now, none), hn::Zero(d), now);
    auto total = hn::Zero(d);
    for (i64 j = 0; j < keys; ++j) {
      T* const at = z + j * width + i;
      const auto weight = power<base, T>(hn::Sub(hn::LoadU(d, at), shift));
      total = hn::Add(total, weight);
      if constexpr (store) hn::StoreU(weight, d, at);
    }
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

}  // namespace weft
