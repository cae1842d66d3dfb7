// Random features of the rows of a whole sequence on CUDA devices, their levels and their
// gradients. The products u = Ω x are in the rows of features and are replaced by them. For .cu
// files.
#pragma once

#include <limits>

#include "ops/attention/engines/scan/features.cuh"
#include "runtime/cuda/workspace.h"

namespace weft::scan {

// Levels of the positions of a causal scan, and the factors that follow from them. Without data all
// factors are 1.
template <class T>
struct Levels {
  View<const T, 3> of = {};  // c, [B, H, N]
  const T* first = nullptr;  // before position 0, [B H]

  __device__ bool rise() const { return of.data != nullptr; }
  // The level before a chunk.
  __device__ T before(i64 b, i64 h, i64 chunk) const {
    const i64 position = chunk * scan_chunk < of.size(2) ? chunk * scan_chunk : of.size(2);
    return position == 0 ? first[b * of.size(1) + h] : of(b, h, position - 1);
  }
  // e^(before − c_i)
  __device__ T in(i64 b, i64 h, i64 i) const {
    return rise() ? std::exp(before(b, h, i / scan_chunk) - of(b, h, i)) : T(1);
  }
  // e^(c_j − before the next chunk)
  __device__ T out(i64 b, i64 h, i64 j) const {
    return rise() ? std::exp(of(b, h, j) - before(b, h, j / scan_chunk + 1)) : T(1);
  }
  // e^(before this chunk − before the next one)
  __device__ T across(i64 b, i64 h, i64 chunk) const {
    return rise() ? std::exp(before(b, h, chunk) - before(b, h, chunk + 1)) : T(1);
  }
  // e^(c_j − c_i)
  __device__ T pair(i64 b, i64 h, i64 i, i64 j) const {
    return rise() ? std::exp(of(b, h, j) - of(b, h, i)) : T(1);
  }
};

// ‖x'‖²/2 of a row.
template <class Team, class S>
__device__ Accumulator<S> half_norm(const Team& team, const Scan<S>& p, const View<const S, 4>& x,
                                    const RowPlace& at) {
  using T = Accumulator<S>;
  const T squares = sum_over<T>(team, p.E(), [&](i64 e, T& sum) {
    const T value = p.scale * widen(x(at.b, at.i, at.h, e));
    sum += value * value;
  });
  return squares / 2;
}

// The largest of u, or of the exponents of hyperbolic features; 0 in rows beyond the length.
template <class S>
struct RowTops {
  using T = Accumulator<S>;

  Scan<S> p;
  View<const S, 4> x;
  View<const T, 4> u;
  bool of_queries;
  View<T, 3> tops;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const RowPlace at(row, x.size(1), p.H());
    const bool both = p.feature == Feature::random_hyperbolic;
    T most = largest_over<T>(team, p.R(), [&](i64 f) {
      const T value = p.scale * u(at.b, at.i, at.h, f);
      return both && value < 0 ? -value : value;
    });
    if (both) most -= half_norm(team, p, x, at);
    const bool counts = at.i < (of_queries ? p.queries(at.b) : p.keys(at.b));
    if (team.rank() == 0) tops(at.b, at.h, at.i) = counts ? most : T(0);
  }
};

// The initial level of one batch item and head: the carried one, or −∞.
template <class T>
struct FirstLevels {
  const double* carried;
  i64 size;
  T* first;
  __device__ void operator()(i64 i) const {
    first[i] = carried == nullptr ? -std::numeric_limits<T>::infinity()
                                  : static_cast<T>(carried[(i + 1) * size - 1]);
  }
};

// The largest of each chunk of keys, one for each call: [B H, chunks].
template <class S>
struct ChunkTops {
  using T = Accumulator<S>;

  Scan<S> p;
  View<const T, 3> tops;
  i64 chunks;
  T* of_chunk;
  __device__ void operator()(i64 i) const {
    const i64 head = i / chunks, b = head / p.H(), begin = i % chunks * scan_chunk,
              keys = p.keys(b);
    T most = -std::numeric_limits<T>::infinity();
    for (i64 j = begin; j < keys && j < begin + scan_chunk; ++j) {
      most = Largest::of(most, tops(b, head % p.H(), j));
    }
    of_chunk[i] = most;
  }
};

// Replaces each by the largest before its chunk; if not causal by the largest of all, which is the
// level. One batch item and head for each call.
template <class S>
struct RunningTops {
  using T = Accumulator<S>;

  Scan<S> p;
  const T* first;
  i64 chunks;
  T* of_chunk;
  __device__ void operator()(i64 head) const {
    T most = first[head];
    for (i64 k = 0; k < chunks; ++k) {
      T& place = of_chunk[head * chunks + k];
      const T own = place;
      place = most;
      most = Largest::of(most, own);
    }
    const i64 b = head / p.H();
    if (!p.causal) p.key_max(b, head % p.H(), 0) = p.keys(b) > 0 ? most : T(0);
  }
};

// The level of each position, of a causal scan.
template <class S>
struct PositionLevels {
  using T = Accumulator<S>;

  Scan<S> p;
  View<const T, 3> tops;
  i64 chunks;
  const T* before;
  __device__ void operator()(i64 i) const {
    const i64 head = i / p.N(), b = head / p.H(), h = head % p.H(), position = i % p.N();
    const i64 chunk = position / scan_chunk, keys = p.keys(b);
    T most = before[head * chunks + chunk];
    for (i64 j = chunk * scan_chunk; j <= position && j < keys; ++j) {
      most = Largest::of(most, tops(b, h, j));
    }
    p.key_max(b, h, position) = keys > 0 ? most : T(0);
  }
};

// u → φ, and w_i for queries.
template <class S>
struct RandomFeatures {
  using T = Accumulator<S>;

  Scan<S> p;
  View<const S, 4> x;
  bool of_queries;
  View<T, 4> phi;
  View<T, 3> weights;
  View<S, 4> operand = {};  // φ rounded, where that is another type

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const RowPlace at(row, x.size(1), p.H());
    const i64 R = p.R();
    T shift = 0;
    if (p.levels()) {
      if (of_queries) {
        shift = p.query_max(at.b, at.h, at.i);
      } else if (at.i < p.keys(at.b)) {
        shift = p.key_max(at.b, at.h, p.causal ? at.i : 0);
      }
      shift += half_norm(team, p, x, at);
    }
    const T constant = of_queries || !p.levels() ? p.constant : T(0);
    T* const to = &phi(at.b, at.i, at.h, 0);
    const T all = sum_over<T>(team, R, [&](i64 f, T& sum) {
      const T u = p.scale * to[f];
      to[f] = (p.levels() ? std::exp(u - shift) : positive(u)) + constant;
      if (p.feature == Feature::random_hyperbolic) to[R + f] = std::exp(-u - shift);
      sum += to[f];
    });
    for (i64 f = team.rank(); operand.data != nullptr && f < R; f += Team::threads) {
      operand(at.b, at.i, at.h, f) = convert<S>(to[f]);
      if (p.F() > R) operand(at.b, at.i, at.h, R + f) = convert<S>(to[R + f]);
    }
    if (weights.data == nullptr) return;
    const bool given = p.feature == Feature::random_exponential;
    if (team.rank() == 0) weights(at.b, at.h, at.i) = given ? constant * all : T(0);
  }
};

// dφ → t for u, and − Σ t for ‖x'‖²/2 (random_features.h). `totals` are those of queries.
template <class S>
struct RandomSlopes {
  using T = Accumulator<S>;

  Scan<S> p;
  View<const T, 4> phi;
  View<const T, 3> totals;
  bool of_queries;
  View<T, 4> dphi;
  View<T, 3> norms;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const RowPlace at(row, phi.size(1), p.H());
    const i64 R = p.R();
    const bool relu = p.feature == Feature::random_relu;
    const T constant = of_queries || relu ? p.constant : T(0);
    const T added = totals.data == nullptr ? T(0) : p.constant * totals(at.b, at.h, at.i);
    const T* const value = &phi(at.b, at.i, at.h, 0);
    T* const slope = &dphi(at.b, at.i, at.h, 0);
    const T all = sum_over<T>(team, R, [&](i64 f, T& sum) {
      const T power = value[f] - constant;
      T t = relu ? (power > 0 ? slope[f] : T(0)) : power * (slope[f] + added);
      sum += t;
      if (p.feature == Feature::random_hyperbolic) {
        const T other = value[R + f] * slope[R + f];
        sum += other;
        t -= other;
      }
      slope[f] = t;
    });
    if (team.rank() == 0) norms(at.b, at.h, at.i) = relu ? T(0) : -all;
  }
};

// dx = scale (Ωᵀ t − (Σ t) x'), where `product` is Ωᵀ t and may be dx; 0 beyond the length.
template <class S>
struct NormGradients {
  using T = Accumulator<S>;

  Scan<S> p;
  View<const S, 4> x;
  View<const T, 3> norms;
  bool of_queries;
  View<const T, 4> product;
  View<S, 4> dx;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const RowPlace at(row, x.size(1), p.H());
    const bool counts = at.i < (of_queries ? p.queries(at.b) : p.keys(at.b));
    const T factor = p.scale * norms(at.b, at.h, at.i);
    for (i64 e = team.rank(); e < p.E(); e += Team::threads) {
      const T gradient = p.scale * (product(at.b, at.i, at.h, e) +
                                    factor * widen(x(at.b, at.i, at.h, e)));
      dx(at.b, at.i, at.h, e) = convert<S>(counts ? gradient : T(0));
    }
  }
};

}  // namespace weft::scan
