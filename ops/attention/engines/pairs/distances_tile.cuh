// Tiles of the CUDA kernels of attention by distance; the equations are in distances.h, tiles of
// scores and of gradients in score_tile.cuh and gradient_tile.cuh.
//
// A tile has three operands: its rows, its columns, and rows for the differences of the two. For
// queries and keys these are the rows of distances, for queries and distances the keys. A thread
// has few differences, 8 r − 16 c apart, and reads a row of them once for all of its pairs. Each
// kernel recomputes the scores, so that every sum has one writer and one order.
//
// The span of a head is read on the device: the grid has a block for every possible key, and a
// block stops at the head's reach.
//
// By count, for heads of 64 in f32 (unmeasured): four elements of the 32 pairs of a thread are 256
// multiply-adds for 26 reads of 16 bytes; without distances 128 for 12. The gradients of the
// weights that dr needs are differences alone: 128 for 18.
#pragma once

#include <cmath>

#include "ops/attention/engines/pairs/distances.h"
#include "ops/attention/engines/pairs/gradient_tile.cuh"
#include "ops/attention/infinity.h"
#include "runtime/cuda/workspace.h"

namespace weft {

// Rows 0 … end − 1 of one head, from which tiles are loaded; without data: zeros.
template <class T>
struct HeadRows {
  const T* data;
  i64 step, column_step, width, end;

  static __device__ HeadRows of(const View<const T, 4>& x, i64 b, i64 h, i64 end) {
    return {x.data + b * x.stride(0) + h * x.stride(2), x.stride(1), x.stride(3), x.size(3), end};
  }
  static __device__ HeadRows of_table(const Distances<T>& p, i64 h, i64 end) {
    const View<const T, 3>& x = p.table;
    return {x.data + p.table_of(h) * x.stride(0), x.stride(1), x.stride(2), x.size(2), end};
  }
};

// `all` rows of `padded` columns, from row `first`, which may be negative, and column `begin` on,
// times `factor`; zeros out of range.
template <class T>
__device__ void load_rows(const HeadRows<T>& x, i64 first, int all, i64 begin, int padded, T factor,
                          T* to, int stride) {
  for (int e = static_cast<int>(threadIdx.x); e < all * padded; e += tile_threads) {
    const int row = e / padded, column = e % padded;
    const i64 i = first + row, at = begin + column;
    const bool inside = i >= 0 && i < x.end && at < x.width;
    to[row * stride + column] = inside ? factor * x.data[i * x.step + at * x.column_step] : T(0);
  }
}

// z[r][c] += Σ_e a[row][e] b[column][e] + a[row][e] d[row − column + 63][e] for row 8 r + ty and
// column 16 c + tx; if `of_columns`, b[column][e] d[column − row + 8 R − 1][e] is added instead.
// The row that a product and a difference share is read once.
template <int R, bool of_columns, class T>
__device__ void add_products_and_differences(const T* a, const T* b, const T* d, int stride,
                                             int padded, T (&z)[R][4]) {
  constexpr int W = word<T>;
  const T* const left = a + tile_y() * stride;
  const T* const right = b + tile_x() * stride;
  const T* const between =
      d + (of_columns ? tile_x() - tile_y() + 8 * R - 1 : tile_y() - tile_x() + tile_columns - 1) *
              stride;
  for (int e = 0; e < padded; e += W) {
    Lanes<T, W> y[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) y[c] = lanes_at<W>(right + 16 * c * stride + e);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const Lanes<T, W> x = lanes_at<W>(left + 8 * r * stride + e);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int apart = of_columns ? 16 * c - 8 * r : 8 * r - 16 * c;
        const Lanes<T, W> difference = lanes_at<W>(between + apart * stride + e);
        const Lanes<T, W>& own = of_columns ? y[c] : x;
#pragma unroll
        for (int w = 0; w < W; ++w) {
          z[r][c] += own.at[w] * difference.at[w];
          z[r][c] += x.at[w] * y[c].at[w];
        }
      }
    }
  }
}

// z[r][c] += Σ_e x[column][e] d[column − row + 8 R − 1][e]
template <int R, class T>
__device__ void add_differences(const T* x, const T* d, int stride, int padded, T (&z)[R][4]) {
  constexpr int W = word<T>;
  const T* const left = x + tile_x() * stride;
  const T* const right = d + (tile_x() - tile_y() + 8 * R - 1) * stride;
  for (int e = 0; e < padded; e += W) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const Lanes<T, W> a = lanes_at<W>(left + 16 * c * stride + e);
        const Lanes<T, W> b = lanes_at<W>(right + (16 * c - 8 * r) * stride + e);
#pragma unroll
        for (int w = 0; w < W; ++w) z[r][c] += a.at[w] * b.at[w];
      }
    }
  }
}

// o[r][c] += Σ_j weights[8 r + ty][j] d[8 r + ty − j + 63][owned_column(c)] over the first
// `columns` j.
template <int R, int C, class T>
__device__ void add_weighted_differences(const T* weights, const T* d, int stride, int columns,
                                         T (&o)[R][C]) {
  constexpr int W = std::min(C, word<T>);
  for (int j = 0; j < columns; ++j) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      const T weight = weights[row * weight_stride<T> + j];
      const T* const from = d + (row - j + tile_columns - 1) * stride;
#pragma unroll
      for (int c = 0; c < C; c += W) {
        const Lanes<T, W> x = lanes_at<W>(from + owned_column<T, C>(c));
#pragma unroll
        for (int w = 0; w < W; ++w) o[r][c + w] += weight * x.at[w];
      }
    }
  }
}

// τ c_d
template <class T>
__device__ T bias_of(const Distances<T>& p, i64 h, i64 d) {
  return p.bias.data == nullptr ? T(0) : p.temperature * p.bias(h, d);
}

// The rows of a block: `rows` adjacent ones of one head.
struct OwnRows {
  i64 b, h, first;
  i64 tile, tiles;
};
__device__ inline OwnRows own_rows_of(i64 length, int rows, i64 H) {
  const i64 tiles = (length + rows - 1) / rows, head = blockIdx.x / tiles,
            tile = blockIdx.x % tiles;
  return {head / H, head % H, tile * rows, tile, tiles};
}
inline dim3 grid_of(i64 heads, i64 length, int rows, i64 width, int columns) {
  return {static_cast<unsigned>(heads * ((length + rows - 1) / rows)),
          static_cast<unsigned>(std::max<i64>((width + columns - 1) / columns, 1))};
}

// Columns of queries, keys and distances that are in shared memory together; in f64 half as many,
// which fit 99 KB.
template <class T>
inline constexpr int held = 128 / sizeof(T);

}  // namespace weft
