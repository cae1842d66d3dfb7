// Tiles of gradients: shared by the kernels of pairs backward, with and without potentials. For .cu
// files.
#pragma once

#include "ops/attention/score_tile.cuh"
#include "runtime/dtype.h"

namespace weft {

// The operands of both products of a tile: z = a · b and da = x · y.
template <class T, int R, int C>
struct Operands {
  static constexpr int rows = 8 * R, columns = 16 * C, stride = row_stride<T>(columns);
  T *a, *x, *b, *y;

  __device__ explicit Operands(SharedMemory& shared)
      : a(shared.take<T>(rows * stride)),
        x(shared.take<T>(rows * stride)),
        b(shared.take<T>(tile_columns * stride)),
        y(shared.take<T>(tile_columns * stride)) {}

  static constexpr std::size_t bytes() {
    return 2 * SharedMemory::bytes<T>(rows * stride) +
           2 * SharedMemory::bytes<T>(tile_columns * stride);
  }

  __device__ void products(T (&z)[R][4], T (&da)[R][4]) const {
    add_products<R>(a, b, stride, columns, z);
    add_products<R>(x, y, stride, columns, da);
  }
};

// How many blocks share the columns of a head, and in how many turns a block processes them.
constexpr int chunks_of(i64 E, i64 M, int columns) {
  return static_cast<int>((std::max(E, M) + columns - 1) / columns);
}

template <int R, int C, class T>
__device__ void store_gradient(const T (&gradient)[R][C], T factor, const TileRows& rows,
                               i64 begin, bool add, const View<T, 4>& to) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = 8 * r + tile_y();
    if (rows.first + row >= to.size(1)) continue;
    const auto at = row_of(to, rows.b, rows.first + row, rows.h);
    T sum[C] = {};
    if (add) load_owned(at, begin, sum);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const T mine = row < rows.count ? factor * gradient[r][c] : T(0);
      sum[c] = add ? sum[c] + mine : mine;
    }
    store_owned(sum, at, begin);
  }
}

// The products of the rows of x and y [B, N, H, M], row by row: δ of every query if they are out
// and dout. A team computes one.
template <class S>
struct RowProducts {
  using T = Accumulator<S>;

  View<const S, 4> x, y;
  View<T, 3> to;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const i64 N = x.size(1), H = x.size(2);
    const i64 b = row / N / H, h = row / N % H, i = row % N;
    T part = 0;
    for (i64 m = team.rank(); m < x.size(3); m += Team::threads) {
      part += convert<T>(x(b, i, h, m)) * convert<T>(y(b, i, h, m));
    }
    part = team.sum(part);
    if (team.rank() == 0) to(b, h, i) = part;
  }
};

}  // namespace weft
