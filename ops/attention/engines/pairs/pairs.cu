// CUDA kernel of the engine for pairs, forward; the equations are in pairs.h, the tiles in
// score_tile.cuh and pairs_tile.cuh.
//
// A block owns 8 R queries of one head and up to 128 columns of its values, and streams over tiles
// of 64 keys. A partial tile has a word of 64 bits for each query. The 16 threads of a row update
// their common μ when a score exceeds it by more than a slack; each thread sums the weights of its
// own columns, and the sums are reduced at the end. Only out and ℓ leave the block. If there are
// few queries, several blocks share their keys, each computes an out and an ℓ, and join_shares()
// merges them.
//
// By count, for heads of 64 in f32: a tile of 64 × 64 is 4096 multiply-adds a thread, 384 reads of
// 16 bytes from shared memory, 32 exponentials of about 10 instructions and 64 loads from cache:
// bound by arithmetic. On an H200 it reaches a third of the rate of cuBLAS's products at 4,096
// positions (bench/results/h200). Narrow heads have kernels of their own (pairs_narrow.cu).
#include <cmath>

#include "ops/attention/engines/pairs/key_shares.cuh"
#include "ops/attention/engines/pairs/pairs_narrow.cuh"
#include "ops/attention/engines/pairs/pairs_tile.cuh"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

// Columns of queries and keys in shared memory together; some even if E is 0.
template <class T>
__host__ __device__ constexpr int held_width(i64 E) {
  return padded_width<T>(std::max<i64>(E, 1), 64);
}

// Resident blocks of a multiprocessor, by registers.
template <class T, int C>
inline constexpr int forward_blocks = std::is_same_v<T, float> && C <= 4 ? 3 : 2;

template <class T>
struct ForwardBlock {
  TileBlock<T> tile;
  View<T, 4> out;  // of the class
  View<T, 3> log_sums;
};

template <class T, int R, int C>
struct ForwardLayout {
  static constexpr int rows = 8 * R, columns = 16 * C;
  static constexpr int value_stride = row_stride<T>(columns);

  static std::size_t bytes(i64 E) {
    const auto stride = static_cast<std::size_t>(row_stride<T>(held_width<T>(E)));
    return SharedMemory::bytes<T>(rows * stride) + SharedMemory::bytes<T>(tile_columns * stride) +
           SharedMemory::bytes<T>(tile_columns * value_stride) +
           SharedMemory::bytes<T>(rows * weight_stride<T>) +
           2 * SharedMemory::bytes<std::uint64_t>(rows) + SharedMemory::bytes<ForwardBlock<T>>(1);
  }
};

// Sets μ to the largest score so far in rows where one exceeds it by more than the slack, and
// rescales their sums. That depends on the row alone.
template <int R, int C, class T>
__device__ void raise(const T (&z)[R][4], T (&most)[R], T (&sum)[R], T (&o)[R][C]) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    T largest = -std::numeric_limits<T>::infinity();
#pragma unroll
    for (int c = 0; c < 4; ++c) largest = Largest::of(largest, z[r][c]);
    largest = over_row<Largest>(largest);
    if (!(largest > most[r] + slack)) continue;
    const T correction = std::exp(most[r] - largest);
    most[r] = largest;
    sum[r] *= correction;
#pragma unroll
    for (int c = 0; c < C; ++c) o[r][c] *= correction;
  }
}

// Item b of share s of the keys is item s B + b of all_out and all_log_sums.
template <class T, int R, int C>
__global__ void __launch_bounds__(tile_threads, forward_blocks<T, C>)
    forward_tiles(Pairs<T> all, DropoutMask mask, View<const T, 3> before, View<T, 4> all_out,
                  View<T, 3> all_log_sums) {
  using Layout = ForwardLayout<T, R, C>;
  constexpr T none = -std::numeric_limits<T>::infinity();

  SharedMemory shared;
  ForwardBlock<T>& block = *shared.take<ForwardBlock<T>>(1);
  if (threadIdx.x == 0) {
    set_block(
        all, all.N(), Layout::rows, [](const Pairs<T>& p, i64 b) { return p.queries(b); },
        block.tile);
    block.out = all.of_class(all_out, block.tile.p.residue, 1);
    block.log_sums = all.of_class(all_log_sums, block.tile.p.residue, 2);
  }
  __syncthreads();
  const auto& [own, out, log_sums] = block;
  const auto& [p, queries] = own;
  const i64 column = i64{blockIdx.y} * Layout::columns;
  const KeyShare share{blockIdx.z, gridDim.z};
  const int padded = held_width<T>(p.E()), stride = row_stride<T>(padded);
  const bool whole_rows = p.E() <= padded;
  T* const q = shared.take<T>(Layout::rows * stride);
  T* const k = shared.take<T>(tile_columns * stride);
  T* const v = shared.take<T>(tile_columns * Layout::value_stride);
  T* const weights = shared.take<T>(Layout::rows * weight_stride<T>);
  std::uint64_t* const kept = shared.take<std::uint64_t>(Layout::rows);
  std::uint64_t* const visible = shared.take<std::uint64_t>(Layout::rows);

  T o[R][C] = {}, most[R], sum[R] = {};
#pragma unroll
  for (int r = 0; r < R; ++r) {
    most[r] = none;
    const int row = 8 * r + tile_y();
    if (before.data == nullptr || row >= queries.count) continue;
    const T log_sum = all.of_class(before, p.residue, 2)(queries.b, queries.h, queries.first + row);
    if (log_sum == -none) continue;
    most[r] = log_sum;
    sum[r] = tile_x() == 0 ? T(1) : T(0);
    load_owned(row_of(out, queries.b, queries.first + row, queries.h), column, o[r]);
  }
  if (whole_rows) load_tile(p.q, queries, Layout::rows, 0, padded, p.temperature, q, stride);

  for (KeyWalk<T> walk(p, queries, p.keys(queries.b), share); walk.next();) {
    const int count = walk.count;
    const TileRows tile{queries.b, queries.h, walk.first, count};
    T z[R][4] = {};
    for (i64 e = 0; e == 0 || e < p.E(); e += padded) {  // values are loaded even if E is 0
      __syncthreads();  // before shared memory is overwritten
      if (!whole_rows) load_tile(p.q, queries, Layout::rows, e, padded, p.temperature, q, stride);
      load_tile(p.k, tile, tile_columns, e, padded, T(1), k, stride);
      if (e == 0) {
        load_tile(p.v, tile, tile_columns, column, Layout::columns, T(1), v, Layout::value_stride);
        if (p.dropout > 0) {
          draw_kept(mask, mask_row(p, queries, queries.first), p.classes, Layout::rows,
                    p.first_column + walk.first, kept);
        }
        if (const int row = static_cast<int>(threadIdx.x); !walk.whole && row < Layout::rows) {
          visible[row] = walk.word(row);
        }
      }
      __syncthreads();
      add_products<R>(q, k, stride, padded, z);
    }
    bool grows = false;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      const std::uint64_t sees = walk.whole ? ~std::uint64_t{0} : visible[row] >> tile_x();
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int j = 16 * c + tile_x();
        const bool seen = j < count && (walk.whole || (sees >> 16 * c & 1) != 0);
        if (p.bias.data != nullptr && seen && row < queries.count) {
          z[r][c] += p.bias(queries.b, queries.h, queries.first + row, walk.first + j);
        }
        if (!seen) z[r][c] = none;
        grows = grows || z[r][c] > most[r] + slack;
      }
    }
    if (__any_sync(0xffffffffu, grows)) raise<R, C>(z, most, sum, o);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const T shift = most[r] == none ? T(0) : most[r];
      const std::uint64_t bits = p.dropout > 0 ? kept[8 * r + tile_y()] >> tile_x() : 0;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const T weight = z[r][c] == none ? T(0) : std::exp(z[r][c] - shift);
        sum[r] += weight;
        z[r][c] = weight;
        if (p.dropout > 0) {
          z[r][c] = (bits >> 16 * c & 1) != 0 ? weight * static_cast<T>(mask.factor) : T(0);
        }
      }
    }
    store_weights<R>(z, weights);
    __syncwarp();
    add_weighted<R, C>(weights, v, Layout::value_stride, count, o);
  }

  const i64 item = share.number * p.B() + queries.b;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = 8 * r + tile_y();
    const i64 i = queries.first + row;
    const T total = over_row<Added>(sum[r]);
    if (i >= p.N()) continue;
    const bool empty = total == 0 || row >= queries.count;  // a sum of NaN is not 0: NaN is kept
#pragma unroll
    for (int c = 0; c < C; ++c) o[r][c] = empty ? T(0) : o[r][c] / total;
    store_owned(o[r], row_of(out, item, i, queries.h), column);
    if (blockIdx.y == 0 && tile_x() == 0) {
      log_sums(item, queries.h, i) = empty ? -none : most[r] + std::log(total);
    }
  }
}

template <class T, int R, int C>
void start_forward(const Cuda& device, const Pairs<T>& p, const View<const T, 3>& before,
                   const View<T, 4>& out, const View<T, 3>& log_sums) {
  using Layout = ForwardLayout<T, R, C>;
  dim3 grid = tile_grid(p, p.N(), Layout::rows, p.M(), Layout::columns);
  const auto run = [&](const auto&... to) {
    start_tiles("pairs", device, grid, Layout::bytes(p.E()), forward_tiles<T, R, C>, p, p.mask(),
                to...);
  };
  const i64 shares = key_shares(p, i64{grid.x} * grid.y);
  if (shares == 1) return run(before, out, log_sums);
  grid.z = static_cast<unsigned>(shares);
  in_shares<T>(device, p, shares, before, out, log_sums,
               [&](const auto& shared_out, const auto& shared_sums) {
                 run(View<const T, 3>{}, shared_out, shared_sums);
               });
}

template <class T, int R>
void start_forward(const Cuda& device, const Pairs<T>& p, const View<const T, 3>& before,
                   const View<T, 4>& out, const View<T, 3>& log_sums) {
  if constexpr (R == 1) {
    if (p.M() <= 16) return start_forward<T, R, 1>(device, p, before, out, log_sums);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (p.M() > 64) return start_forward<T, R, 8>(device, p, before, out, log_sums);
    if (p.M() > 32) return start_forward<T, R, 4>(device, p, before, out, log_sums);
  }
  // In f64 for wider heads, too: 99 KB of shared memory have no room for more columns.
  start_forward<T, R, 2>(device, p, before, out, log_sums);
}

}  // namespace

template <class Device, class S>
void PairsKernels<Device, S>::forward(const Device& device, const Pairs<S>& p,
                                      View<const T, 3> before, View<S, 4> out,
                                      View<T, 3> log_sums) {
  if (p.B() * p.H() * p.N() == 0) return;
  const bool few = p.longest_class(p.N()) <= few_rows;
  if (few) return start_forward<T, 1>(device, p, before, out, log_sums);
  using Narrow = NarrowPairsKernels<Device, T>;
  if (Narrow::fits(p)) return Narrow::forward(device, p, before, out, log_sums);
  start_forward<T, long_rows<T>>(device, p, before, out, log_sums);
}

template struct PairsKernels<Cuda, float>;
template struct PairsKernels<Cuda, double>;

}  // namespace weft
