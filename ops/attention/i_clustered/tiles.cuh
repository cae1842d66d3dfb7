// Tiles of 32 rows and 32 others in a block of 128 threads: their products, weights between them,
// and sums of the others with these weights. Rows are accessed through pointers in shared memory,
// so that they may be gathered from anywhere; a null pointer means a row of zeros.
//
// Thread t owns, of a tile of products, the rows 4 ⌊t/16⌋ … + 3 and two columns 16 apart; of
// a tile of sums, the same rows and four columns 16 apart; of weights, the eight adjacent ones
// given by weighing_row() and weighing_first(), which share one draw of the dropout mask.
//
// A step of the inner loops reads 6 numbers of shared memory for 8 multiplications of products, and
// 8 for 16 of sums: bound by shared memory, at about a third of the peak of f32.
#pragma once

#include <cstdint>

#include "ops/dropout/mask.h"
#include "runtime/cuda/loops.h"

namespace weft::tiles {

constexpr int threads = 128, side = 32, columns = 64;

template <class T>
struct Shared {
  T operand[2][side][side + 1];  // a part of the rows and of the others, or 32 rows of 64 columns
  T first[side][side + 1], second[side][side + 1];  // products and weights [row, other]
  const T* own[2][side];                            // rows: two sequences each, as keys and values
  const T* other[2][side];
};

__device__ inline int weighing_row() { return static_cast<int>(threadIdx.x) / 4; }
__device__ inline int weighing_first() { return static_cast<int>(threadIdx.x) % 4 * 8; }

// Sum and largest over the four threads of a weighing row.
template <class Op, class T>
__device__ T of_row(T x) {
  return over_lanes<4, Op>(x);
}

// to [row, other] = factor · the products over `width` numbers. Pointers that were set before need
// no barrier in between; the caller has to place one before it reads `to`. A warp whose eight rows
// are all `idle` only loads.
template <class T>
__device__ void multiply(Shared<T>& s, const T* const* own, i64 own_step,
                         const T* const* other, i64 other_step, i64 width,
                         T factor, bool idle, T (&to)[side][side + 1]) {
  const int t = threadIdx.x, lane = t % 32, warp = t / 32, row = t / 16 * 4;
  // Rows of the two halves of a warp begin 4 banks apart, and columns 12: they write to 32 banks.
  const int column = (t % 16 + t / 16 % 2 * 12) % side, other_column = column ^ 16;
  T z[4][2] = {};
  for (i64 begin = 0; begin < width; begin += side) {
    const bool real = begin + lane < width;
    __syncthreads();
#pragma unroll
    for (int i = warp; i < side; i += threads / 32) {
      const T *const a = own[i], *const b = other[i];
      s.operand[0][i][lane] = real && a != nullptr ? a[(begin + lane) * own_step] : T(0);
      s.operand[1][i][lane] = real && b != nullptr ? b[(begin + lane) * other_step] : T(0);
    }
    __syncthreads();
    if (idle) continue;
#pragma unroll 8
    for (int e = 0; e < side; ++e) {
      const T b[2] = {s.operand[1][column][e], s.operand[1][other_column][e]};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const T a = s.operand[0][row + i][e];
        z[i][0] += a * b[0];
        z[i][1] += a * b[1];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[row + i][column] = factor * z[i][0];
    to[row + i][other_column] = factor * z[i][1];
  }
}

// sums += weights [row, other] · the columns first … + 63 of the others.
template <class T>
__device__ void accumulate(Shared<T>& s, const T (&weights)[side][side + 1], const T* const* other,
                           i64 step, i64 first, i64 width, bool idle,
                           T (&sums)[4][4]) {
  const int t = threadIdx.x, row = t / 16 * 4, column = t % 16;
  T* const values = &s.operand[0][0][0];
  const i64 at = first + t % columns;
  __syncthreads();
#pragma unroll
  for (int i = t / columns; i < side; i += threads / columns) {
    const T* const from = other[i];
    values[i * columns + t % columns] = from != nullptr && at < width ? from[at * step] : T(0);
  }
  __syncthreads();
  if (idle) return;
#pragma unroll 4
  for (int o = 0; o < side; ++o) {
    T value[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) value[j] = values[o * columns + column + 16 * j];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const T weight = weights[row + i][o];
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] += weight * value[j];
    }
  }
}

// sums of each row · factors[row]
template <class T>
__device__ void scale_rows(const T (&factors)[side], T (&sums)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const T factor = factors[threadIdx.x / 16 * 4 + i];
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i][j] *= factor;
  }
}

// f(row of the tile, column) for this thread's sums within 0 … width − 1, with each.
template <class T, class F>
__device__ void each_sum(i64 first, i64 width, const T (&sums)[4][4],
                         const F& f) {
  const int t = threadIdx.x, row = t / 16 * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const i64 column = first + t % 16 + 16 * j;
      if (column < width) f(row + i, column, sums[i][j]);
    }
  }
}

// The index of the first of the ascending `keys`, padded with −1, that is not below `key`.
__device__ inline i64 place_of(const std::int32_t* keys, i64 count,
                                        i64 key) {
  i64 low = 0, high = count;
  while (low < high) {
    const i64 middle = (low + high) / 2;
    const std::int32_t found = keys[middle];
    if (found >= 0 && found < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Bit j says whether key + j, j < width <= 32, is among the ascending `keys`.
__device__ inline unsigned chosen_from(const std::int32_t* keys, i64 count,
                                       i64 key, int width) {
  unsigned bits = 0;
  for (i64 t = place_of(keys, count, key); t < count; ++t) {
    const i64 j = keys[t] - key;
    if (j < 0 || j >= width) break;
    bits |= 1u << j;
  }
  return bits;
}

}  // namespace weft::tiles
