// Softmax of one row: what softmax, log-sum-exp and cross-entropy share.
//
//     m = max_j x_j,   z = Σ_j e^(x_j − m),   lse = m + ln z
//
// A row of only −∞ has z = 0: its probabilities are 0 and its log-sum-exp is −∞. A NaN anywhere
// makes z NaN.
#pragma once

#include <cmath>
#include <limits>

#include "runtime/pack.h"

namespace weft {

template <class T>
struct RowSum {
  T shift;  // m, or 0 if that is −∞
  double z;
  double log_sum_exp() const { return double(shift) + std::log(z); }
};

template <class T>
T row_max(const T* x, i64 count) {
  namespace hn = simd::hn;
  constexpr i64 lanes = Pack<T>::lanes;
  const simd::Tag<T> d;
  auto most = hn::Neg(hn::Inf(d));
  i64 i = 0;
  for (; i + lanes <= count; i += lanes) most = hn::Max(hn::LoadU(d, x + i), most);
  if (i < count) {
    const auto inside = hn::FirstN(d, static_cast<std::size_t>(count - i));
    most = hn::IfThenElse(inside, hn::Max(simd::load(x + i, count - i), most), most);
  }
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

// The sums of a row; writes e^(x_j − m) to y unless that is null. Ranges of vectors are accumulated
// in T, the ranges' sums in f64.
template <class T>
RowSum<T> row_sum(const T* x, i64 count, T* y = nullptr) {
  constexpr i64 lanes = Pack<T>::lanes, run = 32 * lanes;
  const T most = row_max(x, count);
  RowSum<T> sum{most == -std::numeric_limits<T>::infinity() ? T(0) : most, 0};
  const Pack<T> shift(sum.shift), zero(0.0);
  for (i64 begin = 0; begin < count; begin += run) {
    const i64 end = std::min(count, begin + run);
    Pack<T> part = zero;
    for (i64 i = begin; i < end; i += lanes) {
      Pack<T> e = exp(Pack<T>::load(x + i, end - i) - shift);
      if (end - i < lanes) e = first(e, end - i);
      part = part + e;
      if (y != nullptr) e.store(y + i, end - i);
    }
    sum.z += double(simd::sum_of_lanes<T>(part.vector()));
  }
  return sum;
}

}  // namespace weft
