// Softmax of one row by a team of threads: what softmax, log-sum-exp and cross-entropy share.
//
//     m = max_j x_j,   z = Σ_j e^(x_j − m),   lse = m + ln z
//
// A row of only −∞ has z = 0: its probabilities are 0 and its log-sum-exp is −∞. A NaN anywhere
// makes z NaN.
#pragma once

#include <cmath>
#include <limits>

#include "runtime/cuda/loops.h"

namespace weft {

template <class T>
struct TeamRowSum {
  T shift;  // m, or 0 if that is −∞
  T z;
  __device__ T log_sum_exp() const { return shift + std::log(z); }
};

// Thread t of the team reads the elements t, t + threads, ….
template <class Team, class T>
__device__ TeamRowSum<T> row_sum(const Team& team, const T* x, i64 count) {
  const T none = -std::numeric_limits<T>::infinity();
  T most = none;
  for (i64 j = team.rank(); j < count; j += Team::threads) most = Largest::of(most, x[j]);
  most = team.max(most);
  const T shift = most == none ? T(0) : most;
  T z = 0;
  for (i64 j = team.rank(); j < count; j += Team::threads) z += std::exp(x[j] - shift);
  return {shift, team.sum(z)};
}

}  // namespace weft
