// CUDA kernels of the engine for pairs, backward; the equations are in pairs.h, the tiles in
// score_tile.cuh and pairs_tile.cuh. Two kernels recompute the scores, each for the rows it owns,
// so that every sum has one writer and one order (pairs_narrow.cu has them for narrow heads):
//
//     key_gradients     a block owns 8 R keys and streams over tiles of 64 queries:  dk, dv
//     query_gradients   a block owns 8 R queries and streams over tiles of 64 keys:  dq, dbias
//
// A block has at most 64 columns of the gradients. Wider heads run once for each 64 columns, and
// process the columns of the products in turns that end with the block's own, so that these are in
// shared memory when they are needed.
//
// By count, for heads of 64 in f32: 7 products of 64 × 64 × 64 for a pair of tiles, 3.5 times the
// arithmetic of forward, with the same 12 reads of 16 bytes for 128 multiply-adds: bound by
// arithmetic. On an H200 both take 2.6 times as long as forward at 4,096 positions.
#include <cmath>

#include "ops/attention/engines/pairs/distance_sums.cuh"
#include "ops/attention/engines/pairs/gradient_tile.cuh"
#include "ops/attention/engines/pairs/pairs_narrow.cuh"
#include "ops/attention/engines/pairs/pairs_tile.cuh"
#include "ops/attention/infinity.h"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

template <class T>
struct BackwardBlock {
  TileBlock<T> tile;
  QuerySide<T> of_queries;  // of the class
  View<T, 4> dbias;         // of the class, in query_gradients
};

template <class T, int R, int C>
struct BackwardLayout {
  static constexpr int rows = 8 * R, columns = 16 * C, stride = row_stride<T>(columns);

  // Owned rows and streamed rows of two operands, a tile of weights, and two numbers a streamed
  // row.
  static constexpr std::size_t bytes() {
    return Operands<T, R, C>::bytes() + SharedMemory::bytes<T>(rows * weight_stride<T>) +
           2 * SharedMemory::bytes<std::uint64_t>(tile_columns) +
           2 * SharedMemory::bytes<T>(tile_columns) + SharedMemory::bytes<BackwardBlock<T>>(1);
  }
};

template <class T, int R, int C>
__global__ void __launch_bounds__(tile_threads, 2)
    key_gradients(Pairs<T> all, DropoutMask mask, QuerySide<T> query_side, bool add,
                  View<T, 4> all_dk, View<T, 4> all_dv) {
  using Layout = BackwardLayout<T, R, C>;
  constexpr int width = Layout::columns;

  SharedMemory shared;
  auto& block = *shared.take<BackwardBlock<T>>(1);
  if (threadIdx.x == 0) {
    set_block(
        all, all.S(), Layout::rows, [](const Pairs<T>& p, i64 b) { return p.keys(b); }, block.tile);
    block.of_queries = query_side.of_class(all, block.tile.p.residue);
  }
  __syncthreads();
  const auto& [p, keys] = block.tile;
  const auto& [log_sums, deltas, dout] = block.of_queries;
  const int chunks = chunks_of(p.E(), p.M(), width), own = static_cast<int>(blockIdx.y);

  const Operands<T, R, C> tile(shared);  // keys · queries, values · dout
  T* const weights = shared.take<T>(Layout::rows * weight_stride<T>);
  std::uint64_t* const kept = shared.take<std::uint64_t>(tile_columns);
  std::uint64_t* const visible_to = shared.take<std::uint64_t>(tile_columns);
  T* const log_sum = shared.take<T>(tile_columns);
  T* const delta = shared.take<T>(tile_columns);

  T key_gradient[R][C] = {}, value_gradient[R][C] = {};
  bool first_tile = true;
  for (QueryWalk<T> walk(p, keys, p.queries(keys.b)); walk.next(); first_tile = false) {
    const i64 query = walk.first;
    const TileRows queries{keys.b, keys.h, query, walk.count};
    T z[R][4] = {}, da[R][4] = {};
    for (int turn = 0; turn < chunks; ++turn) {
      const int chunk = (own + 1 + turn) % chunks;
      __syncthreads();  // before shared memory is overwritten
      if (chunks > 1 || first_tile) {
        load_tile(p.k, keys, Layout::rows, chunk * width, width, T(1), tile.a, Layout::stride);
        load_tile(p.v, keys, Layout::rows, chunk * width, width, T(1), tile.x, Layout::stride);
      }
      load_tile(p.q, queries, tile_columns, chunk * width, width, p.temperature, tile.b,
                Layout::stride);
      load_tile(dout, queries, tile_columns, chunk * width, width, T(1), tile.y, Layout::stride);
      if (turn == 0) {
        if (const int t = static_cast<int>(threadIdx.x); t < tile_columns) {
          const bool inside = t < queries.count;
          log_sum[t] = inside ? log_sums(keys.b, keys.h, query + t) : infinity<T>;
          delta[t] = inside ? deltas(keys.b, keys.h, query + t) : T(0);
          if (!walk.whole) visible_to[t] = walk.word(t);
        }
        if (p.dropout > 0) {
          const i64 group = keys.first / tile_columns * tile_columns;
          draw_kept(mask, mask_row(p, keys, query), p.classes, tile_columns, p.first_column + group,
                    kept);
        }
      }
      __syncthreads();
      tile.products(z, da);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int column = 16 * c + tile_x();
      const std::uint64_t bits = p.dropout > 0 ? kept[column] >> (keys.first % tile_columns) : 0;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const int row = 8 * r + tile_y();
        const bool visible = row < keys.count && column < queries.count &&
                             (walk.whole || (visible_to[column] >> row & 1) != 0);
        if (p.bias.data != nullptr && visible) {
          z[r][c] += p.bias(keys.b, keys.h, query + column, keys.first + row);
        }
        const T a = visible ? std::exp(z[r][c] - log_sum[column]) : T(0);
        const T d = p.dropout == 0           ? T(1)
                    : (bits >> row & 1) != 0 ? static_cast<T>(mask.factor)
                                             : T(0);
        da[r][c] = visible ? a * (d * da[r][c] - delta[column]) : T(0);
        z[r][c] = d * a;
      }
    }
    store_weights<R>(z, weights);
    __syncwarp();
    add_weighted<R, C>(weights, tile.y, Layout::stride, queries.count, value_gradient);
    __syncwarp();
    store_weights<R>(da, weights);
    __syncwarp();
    add_weighted<R, C>(weights, tile.b, Layout::stride, queries.count, key_gradient);
  }
  store_gradient<R, C>(key_gradient, T(1), keys, own * width, add,
                       all.of_class(all_dk, p.residue, 1));
  store_gradient<R, C>(value_gradient, T(1), keys, own * width, add,
                       all.of_class(all_dv, p.residue, 1));
}

template <class T, int R, int C>
__global__ void __launch_bounds__(tile_threads, 2)
    query_gradients(Pairs<T> all, DropoutMask mask, QuerySide<T> query_side, bool add,
                    View<T, 4> all_dq, View<T, 4> all_dbias, DistanceSums<T> distances) {
  using Layout = BackwardLayout<T, R, C>;
  constexpr int width = Layout::columns;

  SharedMemory shared;
  auto& block = *shared.take<BackwardBlock<T>>(1);
  if (threadIdx.x == 0) {
    set_block(
        all, all.N(), Layout::rows, [](const Pairs<T>& p, i64 b) { return p.queries(b); },
        block.tile);
    const i64 c = block.tile.p.residue;
    block.of_queries = query_side.of_class(all, c);
    block.dbias = all.of_class(all.of_class(all_dbias, c, 2), c, 3);
  }
  __syncthreads();
  const auto& [own_tile, of_queries, dbias] = block;
  const auto& [p, queries] = own_tile;
  const auto& [log_sums, deltas, dout] = of_queries;
  const int chunks = chunks_of(p.E(), p.M(), width), own = static_cast<int>(blockIdx.y);
  const bool biased = dbias.data != nullptr && own == 0;

  const Operands<T, R, C> tile(shared);  // queries · keys, dout · values
  T* const weights = shared.take<T>(Layout::rows * weight_stride<T>);
  std::uint64_t* const kept = shared.take<std::uint64_t>(tile_columns);
  std::uint64_t* const visible_to = shared.take<std::uint64_t>(tile_columns);
  T* const log_sum = shared.take<T>(tile_columns);
  T* const delta = shared.take<T>(tile_columns);
  if (const int t = static_cast<int>(threadIdx.x); t < queries.count) {
    log_sum[t] = log_sums(queries.b, queries.h, queries.first + t);
    delta[t] = deltas(queries.b, queries.h, queries.first + t);
  }

  T gradient[R][C] = {};
  bool first_tile = true;
  for (KeyWalk<T> walk(p, queries, p.keys(queries.b)); walk.next(); first_tile = false) {
    const i64 key = walk.first;
    const TileRows keys{queries.b, queries.h, key, walk.count};
    T z[R][4] = {}, da[R][4] = {};
    for (int turn = 0; turn < chunks; ++turn) {
      const int chunk = (own + 1 + turn) % chunks;
      __syncthreads();  // before shared memory is overwritten
      if (chunks > 1 || first_tile) {
        load_tile(p.q, queries, Layout::rows, chunk * width, width, p.temperature, tile.a,
                  Layout::stride);
        load_tile(dout, queries, Layout::rows, chunk * width, width, T(1), tile.x, Layout::stride);
      }
      load_tile(p.k, keys, tile_columns, chunk * width, width, T(1), tile.b, Layout::stride);
      load_tile(p.v, keys, tile_columns, chunk * width, width, T(1), tile.y, Layout::stride);
      if (turn == 0) {
        if (p.dropout > 0) {
          draw_kept(mask, mask_row(p, queries, queries.first), p.classes, Layout::rows,
                    p.first_column + key, kept);
        }
        if (const int t = static_cast<int>(threadIdx.x); !walk.whole && t < Layout::rows) {
          visible_to[t] = walk.word(t);
        }
      }
      __syncthreads();
      tile.products(z, da);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = 8 * r + tile_y();
      const i64 i = queries.first + row;
      const std::uint64_t bits = p.dropout > 0 ? kept[row] >> tile_x() : 0;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int column = 16 * c + tile_x();
        const i64 j = key + column;
        const bool visible = row < queries.count && column < keys.count &&
                             (walk.whole || (visible_to[row] >> column & 1) != 0);
        if (p.bias.data != nullptr && visible) z[r][c] += p.bias(queries.b, queries.h, i, j);
        const T d = p.dropout == 0              ? T(1)
                    : (bits >> 16 * c & 1) != 0 ? static_cast<T>(mask.factor)
                                                : T(0);
        z[r][c] = visible ? std::exp(z[r][c] - log_sum[row]) * (d * da[r][c] - delta[row]) : T(0);
        if (biased && visible) dbias(queries.b, queries.h, i, j) += z[r][c];
      }
    }
    store_weights<R>(z, weights);
    __syncwarp();
    add_weighted<R, C>(weights, tile.b, Layout::stride, keys.count, gradient);
    if (distances.sums.data != nullptr && own == 0) {
      const i64 row_of_sums = queries.first / Layout::rows;
      __syncthreads();  // all weights are written; they are not overwritten before the next barrier
      add_diagonals<Layout::rows>(
          weights, &distances.sums(queries.b * p.H() + queries.h, row_of_sums, 0) + key -
                       queries.first - (Layout::rows - 1) - distances.first(row_of_sums));
    }
  }
  store_gradient<R, C>(gradient, p.temperature, queries, own * width, add,
                       all.of_class(all_dq, p.residue, 1));
}

// The gradients, with kernels of these rows and columns.
template <class T>
struct Backward {
  const Cuda& device;
  const Pairs<T>& p;
  QuerySide<T> query_side;
  AddTo add;
  View<T, 4> dq, dk, dv;
  BiasGradient<T> dbias;

  template <int R, int C>
  static constexpr bool narrow = R > 1 && C == 1;  // pairs_narrow.cu has such kernels

  template <int R, int C>
  void keys() const {
    if constexpr (narrow<R, C>) {
      NarrowPairsKernels<Cuda, T>::key_gradients(device, p, query_side, add.keys, dk, dv);
    } else {
      using Layout = BackwardLayout<T, R, C>;
      const dim3 grid = tile_grid(p, p.S(), Layout::rows, std::max(p.E(), p.M()), Layout::columns);
      start_tiles("pairs", device, grid, Layout::bytes(), key_gradients<T, R, C>, p, p.mask(),
                  query_side, add.keys, dk, dv);
    }
  }
  template <int R, int C>
  void queries() const {
    if (narrow<R, C> && dbias.pairs.data == nullptr && dbias.distances.data == nullptr) {
      return NarrowPairsKernels<Cuda, T>::query_gradients(device, p, query_side, add.queries, dq);
    }
    using Layout = BackwardLayout<T, R, C>;
    const dim3 grid = tile_grid(p, p.N(), Layout::rows, std::max<i64>(p.E(), 1), Layout::columns);
    const auto run = [&](const DistanceSums<T>& distances) {
      start_tiles("pairs", device, grid, Layout::bytes(), query_gradients<T, R, C>, p, p.mask(),
                  query_side, add.queries, dq, dbias.pairs, distances);
    };
    sum_distances(device, p, Layout::rows, dbias, run);
  }
  template <int C>
  void both() const {
    constexpr int R = long_rows<T>;
    if (p.S() > 0) p.longest_class(p.S()) <= few_rows ? keys<1, C>() : keys<R, C>();
    if (p.N() > 0) p.longest_class(p.N()) <= few_rows ? queries<1, C>() : queries<R, C>();
  }
};

}  // namespace

template <class Device, class S>
void PairsBackwardKernels<Device, S>::backward(const Device& device, const Pairs<S>& p,
                                               View<const S, 4> out, View<const T, 3> log_sums,
                                               View<const S, 4> dout, AddTo add, View<S, 4> dq,
                                               View<S, 4> dk, View<S, 4> dv,
                                               BiasGradient<T> dbias) {
  if (p.B() * p.H() == 0) return;
  const Workspace<T> work(device, p.B() * p.H() * p.N());
  const View<T, 3> deltas = work.view(p.B(), p.H(), p.N());
  for_rows("pairs", device, p.B() * p.H() * p.N(), p.M(), RowProducts<T>{dout, out, deltas});
  const Backward<T> backward{device, p, {log_sums, deltas, dout}, add, dq, dk, dv, dbias};
  const i64 width = std::max(p.E(), p.M());
  if (NarrowPairsKernels<Device, T>::fits(p)) return backward.template both<1>();
  if constexpr (std::is_same_v<T, float>) {
    if (width > 32) return backward.template both<4>();
  }
  backward.template both<2>();  // in f64 for wider heads, too; see start_forward() of pairs.cu
}

template struct PairsBackwardKernels<Cuda, float>;
template struct PairsBackwardKernels<Cuda, double>;

}  // namespace weft
