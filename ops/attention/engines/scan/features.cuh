// Features of the rows of a whole sequence on CUDA devices, and their gradients; random ones are in
// random_features.cuh. For .cu files.
#pragma once

#include <limits>

#include "ops/attention/engines/scan/scan.h"
#include "runtime/cuda/loops.h"

namespace weft::scan {

// Row (b L + i) H + h of a tensor [B, L, H, ..].
struct RowPlace {
  i64 b, i, h;
  __device__ RowPlace(i64 row, i64 L, i64 H) : b(row / H / L), i(row / H % L), h(row % H) {}
};

template <class T>
__device__ T positive(T x) {
  return x <= 0 ? T(0) : x;
}

// Over a row of `count` elements: the sum to which add(i, sum) adds element i, and the largest of
// value(i). Every thread of the team gets the result.
template <class T, class Team, class Add>
__device__ T sum_over(const Team& team, i64 count, const Add& add) {
  T sum = 0;
  for (i64 i = team.rank(); i < count; i += Team::threads) add(i, sum);
  return team.sum(sum);
}
template <class T, class Team, class Value>
__device__ T largest_over(const Team& team, i64 count, const Value& value) {
  T most = -std::numeric_limits<T>::infinity();
  for (i64 i = team.rank(); i < count; i += Team::threads) most = Largest::of(most, value(i));
  return team.max(most);
}

template <class S>
struct Features {
  using T = Accumulator<S>;

  Scan<S> p;
  View<const S, 4> x;
  bool of_queries;
  View<T, 4> phi;  // or no data
  View<S, 4> operand = {};  // φ rounded, where that is another type

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const RowPlace at(row, x.size(1), p.H());
    const i64 E = p.E();
    const S* const from = &x(at.b, at.i, at.h, 0);
    const auto put = [&](i64 f, T value) {
      if (phi.data != nullptr) phi(at.b, at.i, at.h, f) = value;
      if (operand.data != nullptr) operand(at.b, at.i, at.h, f) = convert<S>(value);
    };
    T most = 0;
    if (p.feature == Feature::exponential && of_queries) {
      most = largest_over<T>(team, E, [&](i64 e) { return widen(from[e * x.stride(3)]); });
    }
    const double theta = p.angle(at.b) * static_cast<double>(p.offset + at.i);
    for (i64 e = team.rank(); e < E; e += Team::threads) {
      const T value = widen(from[e * x.stride(3)]);
      switch (p.feature) {
        case Feature::elu: put(e, value > 0 ? value + 1 : std::exp(value)); break;
        case Feature::relu: put(e, positive(value)); break;
        case Feature::exponential: put(e, std::exp(value - most)); break;
        case Feature::cosine:
          put(e, static_cast<T>(std::sin(theta)) * positive(value));
          put(E + e, static_cast<T>(std::cos(theta)) * positive(value));
          break;
        default: break;
      }
    }
  }
};

// dx from dφ; 0 in rows from the item's end on.
template <class S>
struct FeatureGradients {
  using T = Accumulator<S>;

  Scan<S> p;
  View<const S, 4> x;
  View<const T, 4> phi, dphi;
  bool of_queries;
  View<S, 4> dx;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const RowPlace at(row, x.size(1), p.H());
    const i64 E = p.E();
    const bool counts = at.i < (of_queries ? p.queries(at.b) : p.keys(at.b));
    const T* const slope = &dphi(at.b, at.i, at.h, 0);
    const T* const value = &phi(at.b, at.i, at.h, 0);
    // The first index of the largest, which was subtracted from all.
    i64 largest = -1;
    T sum = 0;
    if (p.feature == Feature::exponential && of_queries) {
      const T most = largest_over<T>(team, E, [&](i64 e) { return widen(x(at.b, at.i, at.h, e)); });
      sum = sum_over<T>(team, E, [&](i64 e, T& s) { s += value[e] * slope[e]; });
      int before = -static_cast<int>(E);
      for (i64 e = team.rank(); e < E; e += Team::threads) {
        if (widen(x(at.b, at.i, at.h, e)) != most) continue;
        before = Largest::of(before, -static_cast<int>(e));
      }
      largest = -team.max(before);
    }
    const double theta = p.angle(at.b) * static_cast<double>(p.offset + at.i);
    for (i64 e = team.rank(); e < E; e += Team::threads) {
      T gradient = 0;
      switch (p.feature) {
        case Feature::elu: gradient = value[e] > 1 ? slope[e] : value[e] * slope[e]; break;
        case Feature::relu: gradient = value[e] > 0 ? slope[e] : T(0); break;
        case Feature::exponential:
          gradient = value[e] * slope[e] - (e == largest ? sum : T(0));
          break;
        case Feature::cosine:
          if (widen(x(at.b, at.i, at.h, e)) > 0) {
            gradient = static_cast<T>(std::sin(theta)) * slope[e] +
                       static_cast<T>(std::cos(theta)) * slope[E + e];
          }
          break;
        default: break;
      }
      dx(at.b, at.i, at.h, e) = convert<S>(counts ? gradient : T(0));
    }
  }
};

// dN and dD of every query.
template <class S>
struct QueryGradients {
  using T = Accumulator<S>;

  Scan<S> p;
  View<const S, 4> out, dout;
  View<const T, 3> divisors;
  View<S, 4> dN;
  View<T, 3> dD;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const RowPlace at(row, p.N(), p.H());
    const T n = divisors(at.b, at.h, at.i);
    const bool counts = at.i < p.queries(at.b);
    const T inner = sum_over<T>(team, p.M(), [&](i64 m, T& sum) {
      const S share = convert<S>(counts ? widen(dout(at.b, at.i, at.h, m)) / n : T(0));
      dN(at.b, at.i, at.h, m) = share;
      if (counts) sum += widen(share) * widen(out(at.b, at.i, at.h, m));
    });
    if (team.rank() == 0) dD(at.b, at.h, at.i) = counts ? -p.slope(n) * inner : T(0);
  }
};

}  // namespace weft::scan
