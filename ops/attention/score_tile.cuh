// Tiles of queries against keys: shared by the kernels that visit every pair. For .cu files.
//
// A block of 128 threads has a tile of scores, 8 R rows by 64 columns. Thread t, with tx = t % 16
// and ty = t / 16, owns in registers its rows 8 r + ty (r < R) and columns 16 c + tx (c < 4). The
// threads of a row are one half of a warp, and nobody else reads what they write to a row of shared
// memory, so __syncwarp() is enough between them.
//
// Operands are row-major in shared memory, with rows padded to an odd number of 16-byte words, so
// that a quarter-warp's 16-byte loads from eight adjacent rows are free of bank conflicts. With R =
// 8 in f32 a thread reads 12 words for 128 multiply-adds. A half-warp reads the same words, so that
// a read takes one phase (its rows) or two (its columns): 16 cycles of shared memory against 32 of
// arithmetic.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/dropout/mask.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/words.h"
#include "runtime/dtype.h"
#include "runtime/view.h"

namespace weft {

inline constexpr int tile_threads = 128, tile_columns = 64;

// R for sequences of this many rows: tiles of 64 rows in f32, 32 in f64, or 8 if there are no more.
template <class T>
inline constexpr int long_rows = 32 / sizeof(T);
inline constexpr i64 few_rows = 8;

__device__ inline int tile_x() { return static_cast<int>(threadIdx.x) % 16; }
__device__ inline int tile_y() { return static_cast<int>(threadIdx.x) / 16; }

// Columns of a row of `width` in whole words, at most `most`, and the elements that the row takes.
template <class T>
__host__ __device__ constexpr int padded_width(i64 width, int most) {
  return static_cast<int>(width < most ? (width + word<T> - 1) / word<T> * word<T> : most);
}
template <class T>
__host__ __device__ constexpr int row_stride(int padded) {
  return padded / word<T> % 2 == 1 ? padded : padded + word<T>;
}
// Padding of a tile of weights: the two rows that a warp writes at once are in different banks.
template <class T>
inline constexpr int weight_stride = tile_columns + 64 / sizeof(T);

// How many of the rows first … first + most − 1 are below `end`.
__device__ inline int rows_within(i64 first, i64 end, int most) {
  return static_cast<int>(end <= first ? 0 : std::min<i64>(end - first, most));
}

// Rows of one batch item and head.
struct TileRows {
  i64 b, h, first;
  int count;  // valid ones; the others are zeros
};

// `all` rows of `padded` columns from column `begin` on, times `factor`.
template <class S, class T>
__device__ void load_tile(const View<const S, 4>& x, const TileRows& rows, int all,
                          i64 begin, int padded, T factor, T* to, int stride) {
  constexpr int together = 8;  // loads in flight
  const int shift = padded <= 8 ? 3 : padded <= 16 ? 4 : 5;
  const int across = 1 << shift, down = tile_threads >> shift;
  const i64 step = x.stride(1);
  for (int e = static_cast<int>(threadIdx.x) % across; e < padded; e += across) {
    const bool inside = begin + e < x.size(3);
    const S* const from = x.data + rows.b * x.stride(0) + rows.first * step + rows.h * x.stride(2) +
                          (begin + e) * x.stride(3);
    for (int row = static_cast<int>(threadIdx.x) >> shift; row < all; row += together * down) {
      T held[together];
#pragma unroll
      for (int k = 0; k < together; ++k) {
        const int i = row + k * down;
        held[k] = inside && i < rows.count ? convert<T>(from[i * step]) : T(0);
      }
#pragma unroll
      for (int k = 0; k < together; ++k) {
        const int i = row + k * down;
        if (i < all) to[i * stride + e] = factor * held[k];
      }
    }
  }
}

// to[e][i] = from(i, e) for `elements` e, a multiple of 8, and i < 64: rows that lie along e in
// memory, turned. A lane has a word of neighbouring i; a warp reads 8 e of each row, whole sectors,
// and the 8 words that one phase of a write takes stand in different banks where rows of `to` begin
// 1 or 4 words of 16 bytes apart, modulo 8.
template <class T, class From>
__device__ void load_turned(int elements, T* to, int stride, const From& from) {
  constexpr int V = word<T>, words = tile_columns / V, warps = tile_threads / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, own = lane / 2 % 4;
  const int along = (lane / 8 * 2 + own + lane % 2) % 8;
  for (int k = static_cast<int>(threadIdx.x) / 32; k < elements / 8 * (words / 4); k += warps) {
    const int e = k % (elements / 8) * 8 + along, i = (k / (elements / 8) * 4 + own) * V;
    Lanes<T, V> lanes;
#pragma unroll
    for (int v = 0; v < V; ++v) lanes.at[v] = from(i + v, e);
    *reinterpret_cast<Lanes<T, V>*>(to + e * stride + i) = lanes;
  }
}

// z[r][c] += Σ_e a[8 r + ty][e] b[16 c + tx][e]
template <int R, class T>
__device__ void add_products(const T* a, const T* b, int stride, int padded, T (&z)[R][4]) {
  constexpr int W = word<T>;
  const T* const left = a + tile_y() * stride;
  const T* const right = b + tile_x() * stride;
  for (int e = 0; e < padded; e += W) {
    Lanes<T, W> y[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) y[c] = lanes_at<W>(right + 16 * c * stride + e);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const Lanes<T, W> x = lanes_at<W>(left + 8 * r * stride + e);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
#pragma unroll
        for (int w = 0; w < W; ++w) z[r][c] += x.at[w] * y[c].at[w];
      }
    }
  }
}

// The column of 16 C that is the c-th of a thread in o below; the words of adjacent threads are
// adjacent.
template <class T, int C>
__device__ int owned_column(int c) {
  constexpr int W = std::min(C, word<T>);
  return c / W * 16 * W + tile_x() * W + c % W;
}

// The owned columns of a row in memory, those from `begin` on; what lies behind its width is left
// alone.
template <int C, class T>
__device__ void load_owned(const ElementRow<T>& row, i64 begin, T (&x)[C]) {
  constexpr int W = std::min(C, word<T>);
#pragma unroll
  for (int c = 0; c < C; c += W) load_columns<W>(row, begin + owned_column<T, C>(c), x + c);
}
template <int C, class T>
__device__ void store_owned(const T (&x)[C], const ElementRow<T>& row, i64 begin) {
  constexpr int W = std::min(C, word<T>);
#pragma unroll
  for (int c = 0; c < C; c += W) store_columns<W>(x + c, row, begin + owned_column<T, C>(c));
}

// o[r][c] += Σ_j weights[8 r + ty][j] x[j][owned_column(c)] over the first `rows` rows of x,
// rounded up to a word; x and the weights are zero there.
template <int R, int C, class T>
__device__ void add_weighted(const T* weights, const T* x, int stride, int rows, T (&o)[R][C]) {
  constexpr int V = word<T>, W = std::min(C, V);
  const T* const left = weights + tile_y() * weight_stride<T>;
  const T* const right = x + tile_x() * W;
  for (int j = 0; j < rows; j += V) {
    Lanes<T, W> y[V][C / W];
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int g = 0; g < C / W; ++g) y[v][g] = lanes_at<W>(right + (j + v) * stride + g * 16 * W);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const Lanes<T, V> weight = lanes_at<V>(left + 8 * r * weight_stride<T> + j);
#pragma unroll
      for (int v = 0; v < V; ++v) {
#pragma unroll
        for (int c = 0; c < C; ++c) o[r][c] += weight.at[v] * y[v][c / W].at[c % W];
      }
    }
  }
}

// Writes the owned elements of a tile of weights.
template <int R, class T>
__device__ void store_weights(const T (&z)[R][4], T* weights) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      weights[(8 * r + tile_y()) * weight_stride<T> + 16 * c + tile_x()] = z[r][c];
    }
  }
}

// Over the threads of a row of scores; all of them get the result.
template <class Op, class T>
__device__ T over_row(T x) {
  return over_lanes<16, Op>(x);
}

// Which weights dropout keeps: bit j of kept[i] is row first_row + i row_step of the mask and
// column first_column + j, a multiple of eight. The threads of the block draw them together, eight
// for each draw.
__device__ inline void draw_kept(const DropoutMask& mask, i64 first_row, i64 row_step,
                                 int rows, i64 first_column, std::uint64_t* kept) {
  auto* const bytes = reinterpret_cast<unsigned char*>(kept);
  for (int k = static_cast<int>(threadIdx.x); k < 8 * rows; k += tile_threads) {
    const i64 row = first_row + k / 8 * row_step, column = first_column + 8 * (k % 8);
    const unsigned eight = column < mask.columns ? mask.keeps_eight(row, column) : 0;
    bytes[k] = static_cast<unsigned char>(eight);
  }
}

// Launches a kernel of tiles.
template <class... P>
void start_tiles(const char* name, const Cuda& device, dim3 grid, std::size_t shared,
                 void (*kernel)(P...), std::type_identity_t<P>... arguments) {
  start(name, device, grid, tile_threads, shared, kernel, arguments...);
}

}  // namespace weft
