// Tiles of scores on tensor cores, with storage in bf16: what score_tile.cuh is for registers of
// f32 and f64. For .cu files.
//
// A block of 128 threads has 64 G rows, G = 1 or 2; warp w has 16 G of them, from row 16 G w on. A
// right side that ldmatrix has brought is multiplied G times. Which lane owns which score is the
// layout of the instruction (runtime/cuda/mma.cuh), known to ScoreFragment alone. The four lanes of
// a quad share 2 G rows.
//
// Operands are rows of W bf16 in shared memory, W = 16, 32, 64 or 128, zero where the sequence or
// the head ends. ldmatrix reads 8 rows at one word of 16 bytes, and 8 words in a row when a tile is
// loaded. Word w of row r is stored in place w xor (r / (8 / n)) mod n, n = min(W / 8, 8), so that
// either eight are in different banks:
//
//     W = 64    r:  0     1     2      …         W = 16    r:  0     4     8     …
//               w:  0 1 … 1 0 3 … 2 3 0 …                  w:  0 1   1 0   0 1
#pragma once

#include <bit>
#include <type_traits>

#include "ops/attention/score_tile.cuh"
#include "runtime/cuda/mma.cuh"
#include "runtime/dtype.h"

namespace weft {

inline constexpr int mma_rows = 64, most_mma_width = 128;

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }
template <int G = 1>
__device__ int first_of_warp() {
  return static_cast<int>(threadIdx.x / 32) * (16 * G);
}

// Calls f with the narrowest width of operands that holds `width` columns, or with `most`, 64 or
// 128, for wider ones.
template <int most = most_mma_width, class F>
void with_mma_width(i64 width, const F& f) {
  if (width <= 16) return f(std::integral_constant<int, 16>{});
  if (width <= 32) return f(std::integral_constant<int, 32>{});
  if constexpr (most > 64) {
    if (width <= 64) return f(std::integral_constant<int, 64>{});
  }
  f(std::integral_constant<int, most>{});
}

// Rows in shared memory.
template <int W>
struct MmaRows {
  static constexpr int words = W / 8;
  bf16* data;
  SharedAddress at;  // of data

  static constexpr std::size_t bytes() { return SharedMemory::bytes<bf16>(mma_rows * W); }
  __device__ explicit MmaRows(SharedMemory& shared, int tiles = 1)
      : data(shared.take<bf16>(tiles * mma_rows * W)), at(shared_address(data)) {}
  __device__ MmaRows(bf16* first, SharedAddress address) : data(first), at(address) {}

  // Bytes from the first row to a word.
  static __device__ int offset(int row, int w) {
    constexpr int together = std::min(words, 8);
    return 2 * W * row + 16 * (w ^ (row / (8 / together) % together));
  }
  __device__ SharedAddress address(int row, int w) const { return at + offset(row, w); }
  // Of row first + row and word 2 k + w; first is a multiple of 8, w 0 or 1. A lane whose row and w
  // stay the same has one address in a register: constants first and k flip a bit or two of it, and
  // add to it.
  __device__ SharedAddress address(int first, int row, int k, int w) const {
    constexpr int together = 16 * std::min(words, 8);  // bytes
    return flip(at + offset(row, w), 32 * k % together) + 32 * k / together * together +
           2 * W * first;
  }
  __device__ bf16* word(int row, int w) const { return data + offset(row, w) / 2; }

  // The rows from `first` on, a multiple of 8: their words are in the same places.
  __device__ MmaRows from(int first) const { return MmaRows(data + first * W, at + 2 * W * first); }
  __device__ MmaRows tile(int number) const { return from(number * mma_rows); }
};

// Whether rows of x are whole words of 16 bytes in memory, and places fit 32 bits.
__device__ inline bool has_words(const View<const bf16, 4>& x) {
  constexpr i64 farthest = i64{1} << 24;
  const bool whole = x.size(3) % 8 == 0 && x.stride(0) % 8 == 0 && x.stride(1) % 8 == 0 &&
                     x.stride(2) % 8 == 0;
  return whole && x.stride(3) == 1 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 &&
         x.size(1) <= std::numeric_limits<int>::max() && 0 <= x.stride(1) &&
         x.stride(1) < farthest;
}

// `count` rows of `columns` numbers and zeros behind them, 64 in all, element by element.
template <int W>
__attribute__((noinline)) __device__ void load_elements(const bf16* from, i64 row_stride,
                                                        i64 stride, i64 columns, int count,
                                                        bf16* to) {
  for (int e = static_cast<int>(threadIdx.x); e < mma_rows * W; e += tile_threads) {
    const int row = e / W, column = e % W;
    const bool inside = row < count && column < columns;
    to[MmaRows<W>::offset(row, column / 8) / 2 + column % 8] =
        inside ? from[row * row_stride + column * stride] : bf16();
  }
}
template <int W>
__device__ void load_elements(const View<const bf16, 4>& x, const TileRows& rows,
                              const MmaRows<W>& to) {
  const auto first = row_of(x, rows.b, rows.first, rows.h);
  load_elements<W>(first.data, x.stride(1), first.stride, first.width, rows.count, to.data);
}

// What a thread copies of every tile of 64 rows of a head: a word of 16 bytes of some rows.
template <int W>
class RowCopies {
 public:
  __device__ RowCopies(const View<const bf16, 4>& x, i64 b, i64 h)
      : from_(reinterpret_cast<const char*>(x.data + b * x.stride(0) + row() * x.stride(1) +
                                            h * x.stride(2) + 8 * word())),
        step_(2 * static_cast<unsigned>(x.stride(1))),
        row_(8 * word() < x.size(3) ? row() : mma_rows) {}

  // Begins the copies of rows first … first + count − 1, and of zeros behind them; to be committed
  // and waited for.
  __device__ __forceinline__ void begin(i64 first, int count, const MmaRows<W>& to) const {
    const char* const from = from_ + std::uint64_t{static_cast<unsigned>(first)} * step_;
    const SharedAddress at = to.address(row(), word());
    const int left = count - row_;
#pragma unroll
    for (int k = 0; k < mma_rows; k += down) {
      cp_async(at + 2 * W * k, from + std::uint64_t{step_} * k, k < left ? 16 : 0);
    }
  }

 private:
  static constexpr int words = MmaRows<W>::words, down = tile_threads / words;
  static_assert(down % 8 == 0);  // one word of all rows of a thread, in one place of each
  static __device__ int word() { return static_cast<int>(threadIdx.x) % words; }
  static __device__ int row() { return static_cast<int>(threadIdx.x) / words; }

  const char* from_;  // of the first row of the head that is its own
  unsigned step_;     // bytes from row to row
  int row_;           // its first of a tile, or one behind all
};

// 64 rows of x from rows.first on; begins copies that have to be committed and waited for.
template <int W>
__device__ void load_rows(const View<const bf16, 4>& x, const TileRows& rows,
                          const MmaRows<W>& to) {
  if (has_words(x)) {
    RowCopies<W>(x, rows.b, rows.h).begin(rows.first, rows.count, to);
  } else {
    load_elements(x, rows, to);
  }
}

// A left side: 16 G rows of a warp by 16 columns, from column 16 k on.
template <int G>
using LeftFragment = std::uint32_t[G][4];
template <int W, int G>
__device__ void load_left(const MmaRows<W>& rows, int k, LeftFragment<G>& to) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int g = 0; g < G; ++g) {
    const MmaRows<W> own = rows.from(first_of_warp<G>());
    ldmatrix_x4(to[g], own.address(16 * g, lane % 16, k, lane / 16));
  }
}

// A left side that is turned: 16 columns of `rows`, a warp's, by its 16 rows from row 16 k on.
template <int W>
__device__ void load_left_turned(const MmaRows<W>& rows, int k, LeftFragment<1>& to) {
  const int lane = lane_of_warp();
  ldmatrix_x4_trans(
      to[0],
      rows.from(16 * k).address(lane / 16 * 8 + lane % 8, first_of_warp() / 8 + lane / 8 % 2));
}

// The scores of a warp: 16 G rows by `width` columns. A lane has 2 G rows and width / 4 columns.
template <int width, int G = 1>
struct ScoreFragment {
  static constexpr int own_rows = 2 * G, own_columns = width / 4;
  struct Rows {
    static __device__ int of(int r) { return first_of_warp<G>() + lane_of_warp() / 4 + 8 * r; }
  };
  struct Columns {
    static __device__ int of(int c) { return c / 2 * 8 + lane_of_warp() % 4 * 2 + c % 2; }
  };
  static constexpr Rows rows = {};
  static constexpr Columns columns = {};

  float at[G][width / 8][4] = {};

  // Two neighbours of row r: columns 2 n and 2 n + 1 of the lane.
  __device__ float* pair(int r, int n) { return at[r / 2][n] + r % 2 * 2; }
  __device__ const float* pair(int r, int n) const { return at[r / 2][n] + r % 2 * 2; }
  __device__ float& operator()(int r, int c) { return pair(r, c / 2)[c % 2]; }

  // f(c, numbers + stride · columns.of(c)) for the columns of a lane, one after the other.
  template <class N, class F>
  static __device__ void each_column(N* numbers, i64 stride, const F& f) {
    numbers += lane_of_warp() % 4 * 2 * stride;
#pragma unroll
    for (int c = 0; c < own_columns; c += 2, numbers += 8 * stride) {
      f(c, numbers), f(c + 1, numbers + stride);
    }
  }

  // Which of a lane's columns have a bit in this word, where bit j is column j.
  static __device__ std::uint64_t own_bits(std::uint64_t word) {
    return word >> lane_of_warp() % 4 * 2;
  }
  static __device__ bool has(std::uint64_t own, int c) {
    return (own & std::uint64_t{1} << (c / 2 * 8 + c % 2)) != 0;
  }

  // Over the columns of a row, of numbers that each lane has reduced for its own.
  template <class Op>
  static __device__ float over_row(float x) {
    return over_lanes<4, Op>(x);
  }

  // These scores, rounded to bf16, as left sides of a product over 16 columns from 16 k on.
  __device__ void left(int k, LeftFragment<G>& to) const {
#pragma unroll
    for (int g = 0; g < G; ++g) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const two = pair(2 * g + i % 2, 2 * k + i / 2);
        to[g][i] = pack(two[0], two[1]);
      }
    }
  }
};

// z[i][j] += Σ_e left[i][e] b[first + j][e] over the 16 columns e from 16 k on.
template <int W, int width, int G>
__device__ void add_products(const LeftFragment<G>& left, const MmaRows<W>& b, int first, int k,
                             ScoreFragment<width, G>& z) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int n = 0; n < width / 16; ++n) {
    std::uint32_t right[4];
    ldmatrix_x4(right, b.address(first + 16 * n, lane / 16 * 8 + lane % 8, k, lane / 8 % 2));
#pragma unroll
    for (int g = 0; g < G; ++g) {
      mma_m16n8k16(z.at[g][2 * n], left[g], right[0], right[1]);
      mma_m16n8k16(z.at[g][2 * n + 1], left[g], right[2], right[3]);
    }
  }
}

// z[i][j] += Σ_e a[i][e] b[first + j][e], i the rows of the warp.
template <int W, int width, int G>
__device__ void add_products(const MmaRows<W>& a, const MmaRows<W>& b, int first,
                             ScoreFragment<width, G>& z) {
#pragma unroll
  for (int k = 0; k < W / 16; ++k) {
    LeftFragment<G> left;
    load_left(a, k, left);
    add_products(left, b, first, k, z);
  }
}

// Sums of weighted rows: 16 G rows of a warp by W columns, the layout of scores.
template <int W, int G = 1>
using WeightedRows = ScoreFragment<W, G>;

// o[i][e] += Σ_j left[i][j] x[first + j][e] over 16 rows of x.
template <int W, int G>
__device__ void add_weighted(const LeftFragment<G>& left, const MmaRows<W>& x, int first,
                             WeightedRows<W, G>& o) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int n = 0; n < W / 16; ++n) {
    std::uint32_t right[4];
    ldmatrix_x4_trans(right, x.address(first, lane % 16, n, lane / 16));
#pragma unroll
    for (int g = 0; g < G; ++g) {
      mma_m16n8k16(o.at[g][2 * n], left[g], right[0], right[1]);
      mma_m16n8k16(o.at[g][2 * n + 1], left[g], right[2], right[3]);
    }
  }
}

// o[i][e] += Σ_j weights[i][j] x[first + j][e], the weights rounded to bf16.
template <int W, int width, int G>
__device__ void add_weighted(const ScoreFragment<width, G>& weights, const MmaRows<W>& x,
                             int first, WeightedRows<W, G>& o) {
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
    LeftFragment<G> left;
    weights.left(k, left);
    add_weighted(left, x, first + 16 * k, o);
  }
}

// Rounds o to the rows of `to` from rows.first on, word by word, through the warp's rows of shared
// memory, which nobody but this warp reads any more. Rows of `to` behind rows.count get what o has
// there.
template <int W, int G>
__device__ void store_rows(const WeightedRows<W, G>& o, const TileRows& rows,
                           const MmaRows<W>& through, const View<bf16, 4>& to) {
  constexpr int words = MmaRows<W>::words;
  const int lane = lane_of_warp();
  __syncwarp();
#pragma unroll
  for (int n = 0; n < words; ++n) {
#pragma unroll
    for (int r = 0; r < o.own_rows; ++r) {
      const float* const two = o.pair(r, n);
      bf16* const pair = through.word(o.rows.of(r), n) + lane % 4 * 2;
      *reinterpret_cast<Lanes<bf16, 2>*>(pair) =
          std::bit_cast<Lanes<bf16, 2>>(pack(two[0], two[1]));
    }
  }
  __syncwarp();
#pragma unroll 4
  for (int k = lane; k < 16 * G * words; k += 32) {
    const int row = first_of_warp<G>() + k / words, w = k % words;
    if (rows.first + row >= to.size(1)) continue;
    const Lanes<bf16, 8> lanes = lanes_at<8, bf16>(through.word(row, w));
    store_columns<8>(lanes.at, row_of(to, rows.b, rows.first + row, rows.h), i64{8} * w);
  }
}

// The same in f32, pair by pair.
template <int W, int G>
__device__ void store_rows(const WeightedRows<W, G>& o, const TileRows& rows, const MmaRows<W>&,
                           const View<float, 4>& to) {
#pragma unroll
  for (int r = 0; r < o.own_rows; ++r) {
    const i64 i = rows.first + o.rows.of(r);
    if (i >= to.size(1)) continue;
    const auto row = row_of(to, rows.b, i, rows.h);
#pragma unroll
    for (int n = 0; n < W / 8; ++n) store_columns<2>(o.pair(r, n), row, o.columns.of(2 * n));
  }
}

}  // namespace weft
