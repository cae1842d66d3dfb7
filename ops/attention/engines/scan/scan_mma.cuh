// Kernels of the engine for scans on tensor cores, with storage in bf16; the equations are in
// scan.h, the kernels of f32 and f64 in sums.cuh and scan.cu, the tiles in mma_tile.cuh. For .cu
// files.
//
// A block owns the 64 rows of a chunk and W columns, W = 16, 32 or 64, of the result or of the
// chunk's sum. Depths and results wider than W go tile by tile. Rows arrive by cp.async; states are
// f32 in memory and are rounded where they are written to shared memory. The sums of f32 beside a
// product, z and D, are taken from the fragments of its left side.
//
// By count, for heads of 64: a warp of rows_mma takes 32 mma.sync and 20 ldmatrix a chunk, and 96
// and 56 with the pairs of a causal one; of sums_mma 32 and 20. These are few for the bytes: a
// position has 512 of q, k, v and out, its rounded features 256, and the states of a causal chunk
// another 256, all written once and read several times. So both kernels are bound by memory.
#pragma once

#include "ops/attention/engines/scan/sums.cuh"
#include "ops/attention/mma_tile.cuh"

namespace weft::scan {

// Columns from `first` on.
template <class T>
__device__ View<T, 4> columns_from(View<T, 4> x, i64 first) {
  x.data += first * x.stride(3);
  x.sizes[3] -= first;
  return x;
}

// sums[r] += Σ_e left[r][e] factors[e] over the lane's columns e of a left side; r as in
// ScoreFragment.
__device__ inline void add_sums(const LeftFragment<1>& left, const float* factors,
                                float (&sums)[2]) {
  const float* const own = factors + lane_of_warp() % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = std::bit_cast<float>(left[0][i] << 16);
    const float high = std::bit_cast<float>(left[0][i] & 0xffff0000u);
    sums[i % 2] += low * own[i / 2 * 8] + high * own[i / 2 * 8 + 1];
  }
}

// Rounds `rows` rows of `columns` numbers, `stride` apart, to W × W operands; the others are zero.
template <int W>
__device__ void load_rounded(const float* from, i64 stride, i64 rows, i64 columns,
                             const MmaRows<W>& to) {
  for (int k = static_cast<int>(threadIdx.x); k < W * W / 2; k += tile_threads) {
    const int row = k / (W / 2), column = k % (W / 2) * 2;
    float pair[2] = {};
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (row < rows && column + c < columns) pair[c] = from[row * stride + column + c];
    }
    *reinterpret_cast<Lanes<bf16, 2>*>(to.word(row, column / 8) + column % 8) =
        std::bit_cast<Lanes<bf16, 2>>(pack(pair[0], pair[1]));
  }
}

template <int W>
struct SumsLayout {
  static std::size_t bytes() {
    return 2 * MmaRows<W>::bytes() + 2 * SharedMemory::bytes<float>(side);
  }
};

// As sums_of_chunks() of sums.cuh. x are rounded features; `exact`, not rounded, are read where
// levels rise, so that a feature is rounded once, with its factor.
template <int W>
__global__ void __launch_bounds__(tile_threads, 4)
    sums_mma(View<const bf16, 4> x, View<const float, 4> exact, View<const bf16, 4> y, Scan<bf16> p,
             bool of_queries, RowWeights<float> weights, States<float> states) {
  const i64 sequence = blockIdx.x / states.chunks, chunk = blockIdx.x % states.chunks;
  const i64 b = sequence / p.H(), h = sequence % p.H(), first = chunk * side;
  const i64 f = i64{blockIdx.y} * W, m = i64{blockIdx.z} * W, F = x.size(3), M = y.size(3);
  const TileRows at{b, h, first, rows_within(first, of_queries ? p.queries(b) : p.keys(b), side)};
  SharedMemory shared;
  const MmaRows<W> left(shared), right(shared);
  float* const weight = shared.take<float>(side);
  float* const fade = shared.take<float>(side);

  const View<const bf16, 4> values = columns_from(y, m);
  load_rows(values, at, right);
  const bool rise = weights.levels.rise();
  if (const int i = static_cast<int>(threadIdx.x); i < side) {
    weight[i] = i < at.count ? weights.of(weights.vector, b, h, first + i) : 0.f;
    if (rise && i < at.count) {
      fade[i] = of_queries ? weights.levels.in(b, h, first + i)
                           : weights.levels.out(b, h, first + i);
    }
  }
  if (!rise) {
    const View<const bf16, 4> features = columns_from(x, f);
    load_rows(features, at, left);
  }
  cp_async_commit();
  if (rise) {
    __syncthreads();  // the factors are there
    for (int k = static_cast<int>(threadIdx.x); k < side * W; k += tile_threads) {
      const int i = k / W, c = k % W;
      const bool inside = i < at.count && f + c < F;
      left.word(i, c / 8)[c % 8] =
          bf16(inside ? fade[i] * exact(b, first + i, h, f + c) : 0.f);
    }
  }
  cp_async_wait<0>();
  __syncthreads();

  float* const to = states.at(sequence, chunk);
  if (first_of_warp() < W) {
    WeightedRows<W> o;
    float sum[2] = {};
#pragma unroll
    for (int k = 0; k < side / 16; ++k) {
      LeftFragment<1> features;
      load_left_turned(left, k, features);
      add_sums(features, weight + 16 * k, sum);
      add_weighted(features, right, 16 * k, o);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const i64 row = f + o.rows.of(r);
      const float total = o.template over_row<Added>(sum[r]);
      if (row >= F) continue;
      const ElementRow<float> of_row{to + row * M, 1, M};
#pragma unroll
      for (int n = 0; n < W / 8; ++n) {
        store_columns<2>(o.pair(r, n), of_row, m + o.columns.of(2 * n));
      }
      if (m == 0 && lane_of_warp() % 4 == 0) to[F * M + row] = total;
    }
  }
  if (!p.levels() || f > 0) return;
  float* const beside = to + F * (M + 1);
  if (const int c = static_cast<int>(threadIdx.x); c < W && m + c < M) {
    float sum = 0;
    for (int i = 0; i < at.count; ++i) {
      sum += weights.of(weights.beside, b, h, first + i) *
             static_cast<float>(right.word(i, c / 8)[c % 8]);
    }
    beside[m + c] = sum;
  }
  if (m == 0 && threadIdx.x == 0) beside[M] = static_cast<float>(at.count), beside[M + 1] = 0;
}

template <int W>
struct RowsLayout {
  static std::size_t bytes() { return 4 * MmaRows<W>::bytes() + SharedMemory::bytes<float>(W); }
};

// As rows_of_chunks() of scan.cu.
template <int W, class Out>
__global__ void __launch_bounds__(tile_threads, 3)
    rows_mma(Scan<bf16> p, Rows<bf16> of, View<Out, 4> out, View<float, 3> divisors) {
  const i64 depth = of.x.size(3), width = out.size(3), M = p.M();
  const i64 tiles = (out.size(1) + side - 1) / side, sequence = blockIdx.x / tiles;
  const i64 b = sequence / p.H(), h = sequence % p.H(), chunk = blockIdx.x % tiles;
  const i64 first = chunk * side, column = i64{blockIdx.y} * W;
  const i64 queries = p.queries(b), keys = p.keys(b);
  const TileRows own{b, h, first, rows_within(first, of.own_queries ? queries : keys, side)};
  const TileRows others{b, h, first, rows_within(first, of.own_queries ? keys : queries, side)};
  const float* const state = of.states.at(sequence, p.causal ? chunk : 0);
  const float* const vector = state + p.F() * M;  // z or g
  const float* const beside = vector + p.F();     // V and the number of keys, or W
  const bool totals = of.beside == Beside::totals;
  const bool pairs = p.causal && own.count > 0 && others.count > 0;

  SharedMemory shared;
  const MmaRows<W> x(shared), matrix(shared), y(shared), u(shared);
  float* const summed = shared.take<float>(W);
  const auto load = [&](const View<const bf16, 4>& from, const TileRows& rows, i64 begin,
                        const MmaRows<W>& to) {
    const View<const bf16, 4> part = columns_from(from, begin);
    load_rows(part, rows, to);
  };

  if (pairs) {
    if (depth <= W) load(of.y, others, 0, y);
    load(of.u, others, column, u);
  }
  WeightedRows<W> o;
  float D[2] = {};
  for (i64 d = 0; d < depth; d += W) {
    if (d > 0) __syncthreads();  // before shared memory is overwritten
    load(of.x, own, d, x);
    cp_async_commit();
    const i64 row = of.turned ? column : d, begin = of.turned ? d : column;
    load_rounded(state + row * M + begin, M, (of.turned ? width : depth) - row, M - begin, matrix);
    if (const int i = static_cast<int>(threadIdx.x); divisors.data != nullptr && i < W) {
      summed[i] = d + i < depth ? (totals ? beside : vector)[d + i] : 0.f;
    }
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int k = 0; k < W / 16; ++k) {
      LeftFragment<1> left;
      load_left(x, k, left);
      if (divisors.data != nullptr) add_sums(left, summed + 16 * k, D);
      of.turned ? add_products(left, matrix, 0, k, o) : add_weighted(left, matrix, 16 * k, o);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = o.rows.of(r);
    const i64 i = first + row;
    D[r] = o.template over_row<Added>(D[r]);
    if (row >= own.count) continue;
    if (of.turned) {
      const float factor = of.own_added.data == nullptr ? 1.f : of.own_added(b, h, i);
#pragma unroll
      for (int c = 0; c < o.own_columns; ++c) {
        const i64 f = column + o.columns.of(c);
        if (f < width) o(r, c) += factor * vector[f];
      }
    }
    if (of.levels.rise()) {
      const float factor = of.fade(b, h, i);
#pragma unroll
      for (int c = 0; c < o.own_columns; ++c) o(r, c) *= factor;
      if (!totals) D[r] *= factor;
    }
    if (of.beside != Beside::nothing) {
      const float weight = of.beside == Beside::outputs ? of.weights(b, h, i)
                           : totals                     ? of.own_added(b, h, i)
                                                        : 1.f;
#pragma unroll
      for (int c = 0; c < o.own_columns && !totals; ++c) {
        const i64 m = column + o.columns.of(c);
        if (m < width) o(r, c) += weight * beside[m];
      }
      D[r] += weight * beside[M];
    }
  }
  if (pairs) {
    ScoreFragment<side> z;
    for (i64 d = 0; d < depth; d += W) {
      if (depth > W) {
        __syncthreads();
        load(of.x, own, d, x);
        load(of.y, others, d, y);
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
      }
      add_products(x, y, 0, z);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = z.rows.of(r);
      const i64 i = first + row;
      float sum = 0;
#pragma unroll
      for (int c = 0; c < z.own_columns; ++c) {
        const int place = z.columns.of(c);
        const i64 j = first + place;
        const bool seen = row < own.count && place < others.count &&
                          (of.own_queries ? place <= row : row <= place);
        if (!seen) {
          z(r, c) = 0;
          continue;
        }
        if (of.own_added.data != nullptr) z(r, c) += of.own_added(b, h, i);
        if (of.other_added.data != nullptr) z(r, c) += of.other_added(b, h, j);
        if (totals) sum += z(r, c);
        if (of.levels.rise()) z(r, c) *= of.fade(b, h, i, j);
        if (of.weights.data != nullptr) z(r, c) += of.weights(b, h, of.own_queries ? i : j);
        if (!totals) sum += static_cast<float>(bf16(z(r, c)));
      }
      if (divisors.data != nullptr) D[r] += z.template over_row<Added>(sum);
    }
    add_weighted(z, u, 0, o);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = o.rows.of(r);
    const bool there = row < own.count;
    float n = 1;
    if (divisors.data != nullptr) {
      if (there && !totals) n = p.divisor(D[r]);
      if (first + row < out.size(1) && column == 0 && lane_of_warp() % 4 == 0) {
        divisors(b, h, first + row) = !there ? 0.f : totals ? D[r] : n;
      }
    }
#pragma unroll
    for (int c = 0; c < o.own_columns; ++c) o(r, c) = there ? o(r, c) / n : 0.f;
  }
  store_rows(o, own, x, columns_from(out, column));
}

}  // namespace weft::scan
