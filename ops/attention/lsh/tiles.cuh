// Tiles of products over rows anywhere in memory: 32 rows that a block of 128 threads owns, against
// 64 streamed ones. Thread t has the 4 × 4 pairs of the rows 4 ⌊t/16⌋ … and 4 (t mod 16) …, so that
// the 16 threads of a half-warp share four owned rows.
//
// A step of 32 elements moves 96 · 32 elements to shared memory for 65,536 multiplications and
// additions; the inner loop reads two vectors of four from shared memory for 16 of each.
#pragma once

#include "ops/attention/by_type.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/words.h"

namespace weft {
namespace lsh_detail {

inline constexpr unsigned tile_threads = 128;
// The least number of resident blocks on a multiprocessor, for register allocation.
template <class T>
inline constexpr unsigned tile_blocks = by_type<T>(3u, 2u);
inline constexpr int owned_rows = 32, streamed_rows = 64, slice = 32;

inline constexpr i64 most_blocks = i64{1} << 30;  // of a grid; the rest by loops
inline unsigned grid_of(i64 items) {
  return static_cast<unsigned>(items < most_blocks ? items : most_blocks);
}

template <class T>
struct alignas(16) Four {
  T at[4];
};

// Both operands of a step, transposed, so that rows are contiguous, and the indices of the rows;
// −1: none. Each line is padded by one vector to spread the lines over the banks.
template <class T>
struct Operands {
  Four<T> owned[slice][owned_rows / 4 + 1];
  Four<T> streamed[slice][streamed_rows / 4 + 1];
  std::int32_t own[owned_rows], other[streamed_rows];
};

// Row r is `data` + r · row_stride, each element times `scale` and, if there are any, factors[r].
template <class T>
struct Rows {
  const T* data;
  i64 row_stride, stride, width;
  T scale = 1;
  const T* factors = nullptr;

  __device__ T operator()(std::int32_t row, i64 column) const {
    const T x = scale * data[row * row_stride + column * stride];
    return factors == nullptr ? x : x * factors[row];
  }
};

__device__ inline int own_group() { return static_cast<int>(threadIdx.x / 16); }
__device__ inline int other_group() { return static_cast<int>(threadIdx.x % 16); }

// Whether none of a warp's eight owned rows is among the first `rows`: it only helps to load.
__device__ inline bool idle_warp(int rows) {
  return static_cast<int>(threadIdx.x / 32) * 8 >= rows;
}

// Loads the elements begin … begin + 31 of each row. A warp loads 8 elements of 4 rows at a time:
// whole sectors of memory, and 32 different banks.
template <int count, class T, int lines>
__device__ __forceinline__ void load_turned(Four<T> (&to)[slice][lines], const std::int32_t* rows,
                                            const Rows<T>& from, i64 begin) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int element = warp * 8 + lane % 8;  // four warps, 32 elements
  if (begin + element >= from.width) return;
#pragma unroll 4
  for (int group = 0; group < count / 4; ++group) {
    const std::int32_t row = rows[group * 4 + lane / 8];
    to[element][group].at[lane / 8] = row < 0 ? T(0) : from(row, begin + element);
  }
}

// z += owned · streamed, over the width of both, for the first `count` owned rows. The rows must be
// set; the function places a barrier before it reads them.
template <class T>
__device__ __forceinline__ void add_products(Operands<T>& shared, int count, const Rows<T>& owned,
                                             const Rows<T>& streamed, T (&z)[4][4]) {
  for (i64 begin = 0; begin < owned.width; begin += slice) {
    __syncthreads();
    load_turned<owned_rows>(shared.owned, shared.own, owned, begin);
    load_turned<streamed_rows>(shared.streamed, shared.other, streamed, begin);
    __syncthreads();
    if (idle_warp(count)) continue;
    const int width = owned.width - begin < slice ? static_cast<int>(owned.width - begin) : slice;
#pragma unroll 4
    for (int e = 0; e < width; ++e) {
      const Four<T> x = shared.owned[e][own_group()], y = shared.streamed[e][other_group()];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) z[i][j] += x.at[i] * y.at[j];
      }
    }
  }
}

// Weights of a tile, [streamed][owned], in fours. Those of a line stand in an order of its own, so
// that the eight lanes that write at once, to every fourth line, find different banks.
template <class T>
struct Weights {
  Four<T> lines[streamed_rows][owned_rows / 4];

  __device__ Four<T>& operator()(int line, int group) { return lines[line][place(line, group)]; }
  __device__ const Four<T>& operator()(int line, int group) const {
    return lines[line][place(line, group)];
  }

 private:
  __device__ static int place(int line, int group) { return group ^ line / 4 % (owned_rows / 4); }
};

template <class T>
__device__ __forceinline__ void store_weights(Weights<T>& weights, const T (&w)[4][4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const Four<T> four = {w[0][j], w[1][j], w[2][j], w[3][j]};
    weights(other_group() * 4 + j, own_group()) = four;
  }
}

// sum[i][j] += Σ over streamed rows of the weight of owned row i · element begin + 4 (t mod 16) +
// j. The function places barriers before weights are read and, except for the weights, after the
// last read.
template <class T>
__device__ __forceinline__ void add_weighted(Operands<T>& shared, int count,
                                             const Weights<T>& weights, const Rows<T>& rows,
                                             i64 begin, T (&sum)[4][4]) {
  const int column = static_cast<int>(threadIdx.x % 64);
  for (int first = 0; first < streamed_rows; first += slice) {
    __syncthreads();
    if (shared.other[first] < 0) break;  // the same for all threads
#pragma unroll 4
    for (int k = 0; k < slice / 2; ++k) {
      const int line = k * 2 + static_cast<int>(threadIdx.x / 64);
      const std::int32_t row = shared.other[first + line];
      shared.streamed[line][column / 4].at[column % 4] =
          row < 0 || begin + column >= rows.width ? T(0) : rows(row, begin + column);
    }
    __syncthreads();
    if (idle_warp(count)) continue;
#pragma unroll 4
    for (int line = 0; line < slice; ++line) {
      const Four<T> w = weights(first + line, own_group());
      const Four<T> x = shared.streamed[line][other_group()];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += w.at[i] * x.at[j];
      }
    }
  }
}

template <class T>
__device__ __forceinline__ void clear(T (&x)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) x[i][j] = 0;
  }
}

// Over the 16 threads that share an owned row; all of them get the result.
template <class Op, class T>
__device__ __forceinline__ T of_row(T x) {
  return over_lanes<16, Op>(x);
}

}  // namespace lsh_detail
}  // namespace weft
