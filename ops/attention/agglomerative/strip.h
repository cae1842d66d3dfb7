// Strips: the few vectors of columns, in f64, that a scan over rows [H, M] processes at a time.
//
// The sums over the rows stay in registers for a block of rows; the rows of a block stay in the L1
// cache until every strip has been processed. Rows are of f32 or f64, their classes `step` apart.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/simd.h"

namespace weft::strips {

namespace hn = simd::hn;

using Doubles = simd::Vector<double>;
constexpr simd::Tag<double> f64;
constexpr i64 lanes = simd::lanes<double>;
constexpr i64 block = 32;  // rows that a strip processes at a time

// The first min(count, lanes) elements at `from` in f64; the remaining lanes are zero.
template <class T>
HWY_INLINE Doubles load(const T* from, i64 count) {
  if constexpr (std::is_same_v<T, double>) {
    return simd::load(from, count);
  } else {
    const hn::Rebind<T, simd::Tag<double>> narrow;
    if (count >= lanes) return hn::PromoteTo(f64, hn::LoadU(narrow, from));
    const auto inside = hn::FirstN(narrow, static_cast<std::size_t>(count));
    return hn::PromoteTo(f64, hn::MaskedLoad(inside, narrow, from));
  }
}

template <class T>
HWY_INLINE void store(Doubles value, T* to, i64 count) {
  if constexpr (std::is_same_v<T, double>) {
    simd::store<double>(value, to, count);
  } else {
    const hn::Rebind<T, simd::Tag<double>> narrow;
    const auto rounded = hn::DemoteTo(narrow, value);
    if (count >= lanes) return hn::StoreU(rounded, narrow, to);
    hn::BlendedStore(rounded, hn::FirstN(narrow, static_cast<std::size_t>(count)), narrow, to);
  }
}

// V vectors of the columns [H, M] of a row: either consecutive ones of class k from column j on,
// or, if `across`, those at column j of the classes k, k + 1, …. If not `whole`, the last vector of
// a class is partial.
template <int V, bool across, bool whole>
struct Strip {
  static constexpr int vectors = V;
  i64 k, j, M;

  template <class T>
  HWY_INLINE Doubles get(int v, const T* row, i64 step) const {
    return load(row + k * step + j + v * (across ? step : lanes), whole ? lanes : M - j);
  }
  template <class T>
  HWY_INLINE void put(int v, Doubles value, T* row, i64 step) const {
    store(value, row + k * step + j + v * (across ? step : lanes), whole ? lanes : M - j);
  }
  // The weight of a vector's class.
  HWY_INLINE Doubles of(int v, const double* weights) const {
    return hn::Set(f64, weights[across ? k + v : k]);
  }
  // All vectors of a row in f64, with contiguous classes.
  HWY_INLINE void get_all(const double* row, Doubles* to) const {
    for (int v = 0; v < V; ++v) to[v] = get(v, row, M);
  }
  HWY_INLINE void put_all(const Doubles* values, double* row) const {
    for (int v = 0; v < V; ++v) put(v, values[v], row, M);
  }
  // sum += weight x for the vectors x of a row.
  template <class T>
  HWY_INLINE void add_row(const double* weights, const T* row, i64 step, Doubles* sum) const {
    for (int v = 0; v < V; ++v) sum[v] = hn::MulAdd(of(v, weights), get(v, row, step), sum[v]);
  }
  // sums[class] += Σ_j of the vectors x.
  HWY_INLINE void add_dot(const Doubles* x, double* sums) const {
    if constexpr (across) {
      for (int v = 0; v < V; ++v) sums[k + v] += simd::sum_of_lanes<double>(x[v]);
    } else {
      Doubles total = x[0];
      for (int v = 1; v < V; ++v) total = hn::Add(total, x[v]);
      sums[k] += simd::sum_of_lanes<double>(total);
    }
  }
};

// Calls f(strip) until all columns are processed.
template <class F>
HWY_INLINE void each_strip_of_row(i64 H, i64 M, const F& f) {
  constexpr int V = 4;  // more do not fit the registers of the backward pass
  const i64 within = M / (V * lanes) * (V * lanes);
  for (i64 k = 0; k < H; ++k) {
    for (i64 j = 0; j < within; j += V * lanes) f(Strip<V, false, true>{k, j, M});
  }
  for (i64 j = within; j < M; j += lanes) {
    const bool whole = j + lanes <= M;
    i64 k = 0;
    for (; k + V <= H; k += V) {
      if (whole) {
        f(Strip<V, true, true>{k, j, M});
      } else {
        f(Strip<V, true, false>{k, j, M});
      }
    }
    for (; k < H; ++k) f(Strip<1, true, false>{k, j, M});
  }
}

// Calls f(strip, begin, end) so that each strip visits the blocks of rows in order.
template <class F>
void each_strip(i64 H, i64 M, i64 rows, const F& f) {
  for (i64 begin = 0; begin < rows; begin += block) {
    const i64 end = std::min(rows, begin + block);
    each_strip_of_row(H, M, [&](const auto& strip) { f(strip, begin, end); });
  }
}

}  // namespace weft::strips
