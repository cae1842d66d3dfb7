// CUDA kernels of the engine for pairs for heads of at most 16 columns, forward and backward; the
// equations are in pairs.h.
//
// A block owns 32 rows of one head, queries or keys, and streams over tiles of 64 of the others.
// Four neighbouring lanes have one row: in registers its operands and its sums over every fourth
// row of the tiles, which they merge at the end, in a fixed order. No tile of scores is stored.
// A warp reads four neighbouring rows of shared memory at once, whose words stand in different
// banks, since rows have an odd number of them.
//
// The tiles of score_tile.cuh give 16 lanes to 16 columns, take 20 KB of shared memory for scores
// and two to three times the registers. bench/results has a training step on an H200 with either.
#include <cmath>

#include "ops/attention/engines/pairs/pairs_narrow.cuh"
#include "ops/attention/infinity.h"

namespace weft {
namespace {

constexpr int lanes_a_row = 4, narrow_rows = tile_threads / lanes_a_row;

__device__ int own_row() { return static_cast<int>(threadIdx.x) / lanes_a_row; }
__device__ int own_lane() { return static_cast<int>(threadIdx.x) % lanes_a_row; }

template <int W, class T>
__device__ T dot(const T (&x)[W], const T* y) {
  constexpr int V = word<T>;
  T sum = 0;
#pragma unroll
  for (int e = 0; e < W; e += V) {
    const Lanes<T, V> lanes = lanes_at<V>(y + e);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += x[e + v] * lanes.at[v];
  }
  return sum;
}

// sum += factor y
template <int W, class T>
__device__ void add_scaled(T factor, const T* y, T (&sum)[W]) {
  constexpr int V = word<T>;
#pragma unroll
  for (int e = 0; e < W; e += V) {
    const Lanes<T, V> lanes = lanes_at<V>(y + e);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[e + v] += factor * lanes.at[v];
  }
}

// The block's own row of x [B, N, H, width], times `factor`; zeros behind its width, and where the
// block has no such row.
template <int W, class T>
__device__ void load_row(const View<const T, 4>& x, const TileRows& rows, T factor, T (&to)[W]) {
  if (own_row() < rows.count) {
    load_columns<W>(row_of(x, rows.b, rows.first + own_row(), rows.h), 0, to);
  }
#pragma unroll
  for (int e = 0; e < W; ++e) to[e] *= factor;
}

// The sums of the lanes of a row are stored, or added, by the first of them.
template <int W, class T>
__device__ void store_row(T (&sum)[W], T factor, const TileRows& rows, bool add,
                          const View<T, 4>& to) {
#pragma unroll
  for (int e = 0; e < W; ++e) sum[e] = over_lanes<lanes_a_row, Added>(sum[e]);
  if (own_lane() != 0 || rows.first + own_row() >= to.size(1)) return;
  const auto at = row_of(to, rows.b, rows.first + own_row(), rows.h);
  T stored[W] = {};
  if (add) load_columns<W>(at, 0, stored);
#pragma unroll
  for (int e = 0; e < W; ++e) {
    const T mine = own_row() < rows.count ? factor * sum[e] : T(0);
    stored[e] = add ? stored[e] + mine : mine;
  }
  store_columns<W>(stored, at, 0);
}

// The factor that dropout gives to the weight of a bit.
template <class T>
__device__ T dropout_factor(const DropoutMask& mask, std::uint64_t kept, int bit) {
  return (kept >> bit & 1) != 0 ? static_cast<T>(mask.factor) : T(0);
}

// Room of a block for two tiles of streamed rows and two numbers a row, and for two words of each
// of `bits` rows.
template <class T, int W>
struct NarrowLayout {
  static constexpr int stride = row_stride<T>(W);

  static constexpr std::size_t bytes(int bits) {
    return 2 * SharedMemory::bytes<T>(tile_columns * stride) +
           2 * SharedMemory::bytes<std::uint64_t>(bits) + 2 * SharedMemory::bytes<T>(tile_columns) +
           SharedMemory::bytes<TileBlock<T>>(1) + SharedMemory::bytes<QuerySide<T>>(1);
  }
};

// Bit j: whether the block's own query sees key j of a tile, and whether dropout keeps its weight.
struct OwnQuery {
  std::uint64_t seen, kept;
};

// The keys and values of the walk's tile, and what dropout keeps, in shared memory.
template <int W, class T>
__device__ OwnQuery load_keys(const Pairs<T>& p, const TileRows& queries, const KeyWalk<T>& walk,
                              const DropoutMask& mask, T* k, T* v, std::uint64_t* kept) {
  constexpr int stride = NarrowLayout<T, W>::stride;
  const TileRows tile{queries.b, queries.h, walk.first, walk.count};
  __syncthreads();  // before shared memory is overwritten
  load_tile(p.k, tile, tile_columns, 0, W, T(1), k, stride);
  load_tile(p.v, tile, tile_columns, 0, W, T(1), v, stride);
  if (p.dropout > 0) {
    draw_kept(mask, mask_row(p, queries, queries.first), p.classes, narrow_rows,
              p.first_column + walk.first, kept);
  }
  __syncthreads();  // before it is read
  if (own_row() >= queries.count) return {0, 0};
  const std::uint64_t there = bits_between(0, walk.count);
  return {walk.whole ? there : there & walk.word(own_row()), p.dropout > 0 ? kept[own_row()] : 0};
}

// Blocks of a multiprocessor for which registers are allocated: as many as spill nothing.
template <class T, int W>
constexpr int resident(int narrowest) {
  return std::is_same_v<T, double> ? 1 : W == 8 ? narrowest : 3;
}

template <class T, int W>
__global__ void __launch_bounds__(tile_threads, resident<T, W>(7))
    narrow_forward(Pairs<T> all, DropoutMask mask, View<const T, 3> before, View<T, 4> all_out,
                   View<T, 3> all_log_sums) {
  constexpr int stride = NarrowLayout<T, W>::stride, together = 4;
  constexpr T none = -infinity<T>;
  SharedMemory shared;
  TileBlock<T>& block = *shared.take<TileBlock<T>>(1);
  if (threadIdx.x == 0) {
    set_block(
        all, all.N(), narrow_rows, [](const Pairs<T>& p, i64 b) { return p.queries(b); }, block);
  }
  __syncthreads();
  const auto& [p, queries] = block;
  T* const k = shared.take<T>(tile_columns * stride);
  T* const v = shared.take<T>(tile_columns * stride);
  std::uint64_t* const kept = shared.take<std::uint64_t>(narrow_rows);
  const int row = own_row(), lane = own_lane();
  const i64 i = queries.first + row;
  const View<T, 4> out = all.of_class(all_out, p.residue, 1);

  T q[W] = {}, o[W] = {}, most = none, sum = 0;
  load_row(p.q, queries, p.temperature, q);
  if (before.data != nullptr && row < queries.count && lane == 0) {
    const T log_sum = all.of_class(before, p.residue, 2)(queries.b, queries.h, i);
    if (log_sum != -none) {
      most = log_sum, sum = 1;
      load_columns<W>(row_of(out, queries.b, i, queries.h), 0, o);
    }
  }
  for (KeyWalk<T> walk(p, queries, p.keys(queries.b)); walk.next();) {
    const OwnQuery own = load_keys<W>(p, queries, walk, mask, k, v, kept);
    for (int first = lane; first < walk.count; first += together * lanes_a_row) {
      T z[together];
      bool grows = false;
#pragma unroll
      for (int c = 0; c < together; ++c) {
        const int j = first + c * lanes_a_row;
        const bool sees = (own.seen >> j & 1) != 0;
        z[c] = dot<W>(q, k + j * stride);
        if (p.bias.data != nullptr && sees) z[c] += p.bias(queries.b, queries.h, i, walk.first + j);
        if (!sees) z[c] = none;
        grows = grows || z[c] > most + slack;
      }
      if (grows) {
        T largest = most;
#pragma unroll
        for (int c = 0; c < together; ++c) largest = Largest::of(largest, z[c]);
        const T correction = std::exp(most - largest);
        most = largest;
        sum *= correction;
#pragma unroll
        for (int e = 0; e < W; ++e) o[e] *= correction;
      }
      const T shift = most == none ? T(0) : most;
#pragma unroll
      for (int c = 0; c < together; ++c) {
        const int j = first + c * lanes_a_row;
        T weight = z[c] == none ? T(0) : std::exp(z[c] - shift);
        sum += weight;
        if (p.dropout > 0) weight *= dropout_factor<T>(mask, own.kept, j);
        add_scaled<W>(weight, v + j * stride, o);
      }
    }
  }

  // The lanes of a row to one maximum, then their sums.
  const T top = over_lanes<lanes_a_row, Largest>(most);
  const T scale = most == none ? T(0) : std::exp(most - top);
  const T total = over_lanes<lanes_a_row, Added>(sum * scale);
  const bool empty = total == 0 || row >= queries.count;  // a sum of NaN is not 0: NaN is kept
#pragma unroll
  for (int e = 0; e < W; ++e) {
    const T joint = over_lanes<lanes_a_row, Added>(o[e] * scale);
    o[e] = empty ? T(0) : joint / total;
  }
  if (lane != 0 || i >= p.N()) return;
  store_columns<W>(o, row_of(out, queries.b, i, queries.h), 0);
  all.of_class(all_log_sums, p.residue, 2)(queries.b, queries.h, i) =
      empty ? -none : top + std::log(total);
}

template <class T, int W>
__global__ void __launch_bounds__(tile_threads, resident<T, W>(5))
    narrow_key_gradients(Pairs<T> all, DropoutMask mask, QuerySide<T> query_side, bool add,
                         View<T, 4> all_dk, View<T, 4> all_dv) {
  constexpr int stride = NarrowLayout<T, W>::stride;
  SharedMemory shared;
  TileBlock<T>& block = *shared.take<TileBlock<T>>(1);
  QuerySide<T>& side = *shared.take<QuerySide<T>>(1);
  if (threadIdx.x == 0) {
    set_block(
        all, all.S(), narrow_rows, [](const Pairs<T>& p, i64 b) { return p.keys(b); }, block);
    side = query_side.of_class(all, block.p.residue);
  }
  __syncthreads();
  const auto& [p, keys] = block;
  T* const q = shared.take<T>(tile_columns * stride);
  T* const g = shared.take<T>(tile_columns * stride);
  std::uint64_t* const kept = shared.take<std::uint64_t>(tile_columns);
  std::uint64_t* const visible_to = shared.take<std::uint64_t>(tile_columns);
  T* const log_sum = shared.take<T>(tile_columns);
  T* const delta = shared.take<T>(tile_columns);
  const int row = own_row(), place = static_cast<int>(keys.first % tile_columns) + row;

  T k[W] = {}, v[W] = {}, dk[W] = {}, dv[W] = {};
  load_row(p.k, keys, T(1), k);
  load_row(p.v, keys, T(1), v);
  for (QueryWalk<T> walk(p, keys, p.queries(keys.b)); walk.next();) {
    const TileRows queries{keys.b, keys.h, walk.first, walk.count};
    __syncthreads();  // before shared memory is overwritten
    load_tile(p.q, queries, tile_columns, 0, W, p.temperature, q, stride);
    load_tile(side.dout, queries, tile_columns, 0, W, T(1), g, stride);
    if (const int t = static_cast<int>(threadIdx.x); t < tile_columns) {
      const bool inside = t < queries.count;
      log_sum[t] = inside ? side.log_sums(keys.b, keys.h, queries.first + t) : infinity<T>;
      delta[t] = inside ? side.deltas(keys.b, keys.h, queries.first + t) : T(0);
      visible_to[t] = walk.whole ? ~std::uint64_t{0} : walk.word(t);
    }
    if (p.dropout > 0) {
      draw_kept(mask, mask_row(p, keys, queries.first), p.classes, tile_columns,
                p.first_column + keys.first / tile_columns * tile_columns, kept);
    }
    __syncthreads();
#pragma unroll 2
    for (int t = own_lane(); t < queries.count; t += lanes_a_row) {
      if (row >= keys.count || (visible_to[t] >> row & 1) == 0) continue;
      T z = dot<W>(k, q + t * stride);
      if (p.bias.data != nullptr) z += p.bias(keys.b, keys.h, queries.first + t, keys.first + row);
      const T weight = std::exp(z - log_sum[t]);
      const T d = p.dropout > 0 ? dropout_factor<T>(mask, kept[t], place) : T(1);
      add_scaled<W>(d * weight, g + t * stride, dv);
      add_scaled<W>(weight * (d * dot<W>(v, g + t * stride) - delta[t]), q + t * stride, dk);
    }
  }
  store_row(dk, T(1), keys, add, all.of_class(all_dk, p.residue, 1));
  store_row(dv, T(1), keys, add, all.of_class(all_dv, p.residue, 1));
}

template <class T, int W>
__global__ void __launch_bounds__(tile_threads, resident<T, W>(5))
    narrow_query_gradients(Pairs<T> all, DropoutMask mask, QuerySide<T> query_side, bool add,
                           View<T, 4> all_dq) {
  constexpr int stride = NarrowLayout<T, W>::stride;
  SharedMemory shared;
  TileBlock<T>& block = *shared.take<TileBlock<T>>(1);
  QuerySide<T>& side = *shared.take<QuerySide<T>>(1);
  if (threadIdx.x == 0) {
    set_block(
        all, all.N(), narrow_rows, [](const Pairs<T>& p, i64 b) { return p.queries(b); }, block);
    side = query_side.of_class(all, block.p.residue);
  }
  __syncthreads();
  const auto& [p, queries] = block;
  T* const k = shared.take<T>(tile_columns * stride);
  T* const v = shared.take<T>(tile_columns * stride);
  std::uint64_t* const kept = shared.take<std::uint64_t>(narrow_rows);
  const int row = own_row();
  const i64 i = queries.first + row;
  const bool there = row < queries.count;

  T q[W] = {}, g[W] = {}, dq[W] = {};
  load_row(p.q, queries, p.temperature, q);
  load_row(side.dout, queries, T(1), g);
  const T log_sum = there ? side.log_sums(queries.b, queries.h, i) : T(0);
  const T delta = there ? side.deltas(queries.b, queries.h, i) : T(0);
  for (KeyWalk<T> walk(p, queries, p.keys(queries.b)); walk.next();) {
    const OwnQuery own = load_keys<W>(p, queries, walk, mask, k, v, kept);
#pragma unroll 2
    for (int j = own_lane(); j < walk.count; j += lanes_a_row) {
      if ((own.seen >> j & 1) == 0) continue;
      T z = dot<W>(q, k + j * stride);
      if (p.bias.data != nullptr) z += p.bias(queries.b, queries.h, i, walk.first + j);
      const T d = p.dropout > 0 ? dropout_factor<T>(mask, own.kept, j) : T(1);
      add_scaled<W>(std::exp(z - log_sum) * (d * dot<W>(g, v + j * stride) - delta), k + j * stride,
                    dq);
    }
  }
  store_row(dq, p.temperature, queries, add, all.of_class(all_dq, p.residue, 1));
}

// Calls run(width), a constant of 8 or 16.
template <class T, class F>
void with_width(const Pairs<T>& p, const F& run) {
  std::max(p.E(), p.M()) <= 8 ? run(std::integral_constant<int, 8>{})
                              : run(std::integral_constant<int, 16>{});
}

template <class T>
dim3 blocks_of(const Pairs<T>& p, i64 length) {
  return tile_grid(p, length, narrow_rows, 1, 1);
}

}  // namespace

template <class Device, class T>
void NarrowPairsKernels<Device, T>::forward(const Device& device, const Pairs<T>& p,
                                            View<const T, 3> before, View<T, 4> out,
                                            View<T, 3> log_sums) {
  with_width(p, [&](auto width) {
    constexpr int W = decltype(width)::value;
    start_tiles("pairs", device, blocks_of(p, p.N()), NarrowLayout<T, W>::bytes(narrow_rows),
                narrow_forward<T, W>, p, p.mask(), before, out, log_sums);
  });
}

template <class Device, class T>
void NarrowPairsKernels<Device, T>::key_gradients(const Device& device, const Pairs<T>& p,
                                                  const QuerySide<T>& query_side, bool add,
                                                  View<T, 4> dk, View<T, 4> dv) {
  with_width(p, [&](auto width) {
    constexpr int W = decltype(width)::value;
    start_tiles("pairs", device, blocks_of(p, p.S()), NarrowLayout<T, W>::bytes(tile_columns),
                narrow_key_gradients<T, W>, p, p.mask(), query_side, add, dk, dv);
  });
}

template <class Device, class T>
void NarrowPairsKernels<Device, T>::query_gradients(const Device& device, const Pairs<T>& p,
                                                    const QuerySide<T>& query_side, bool add,
                                                    View<T, 4> dq) {
  with_width(p, [&](auto width) {
    constexpr int W = decltype(width)::value;
    start_tiles("pairs", device, blocks_of(p, p.N()), NarrowLayout<T, W>::bytes(narrow_rows),
                narrow_query_gradients<T, W>, p, p.mask(), query_side, add, dq);
  });
}

template struct NarrowPairsKernels<Cuda, float>;
template struct NarrowPairsKernels<Cuda, double>;

}  // namespace weft
