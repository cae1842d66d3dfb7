// CUDA kernels of the engine for pairs on tensor cores, backward, with storage in bf16; the
// equations are in pairs.h, the tiles in mma_tile.cuh and pairs_tile.cuh. As in pairs_backward.cu
// two kernels recompute the scores, each for the rows it owns, so that every sum has one writer and
// one order:
//
//     key_gradients_mma     a block owns 64 keys and streams over tiles of 64 queries:  dk, dv
//     query_gradients_mma   a block owns 64 queries and streams over tiles of 64 keys:  dq, dbias
//
// The rows that a block owns are left sides, those that it streams arrive by cp.async in two
// stages. Scores and their gradients are rounded to bf16 in place, where they are the left sides of
// the products that add to the gradients. A warp takes the streamed rows of a tile at once, or 16
// queries or 32 keys where heads are wider than 64: both products of these are in registers beside
// the sums.
//
// By count, for heads of 64: key_gradients_mma takes 128 mma.sync and 72 ldmatrix a warp and tile,
// query_gradients_mma 96 and 56: 3.5 times the arithmetic of forward and 3.6 times its reads of
// shared memory.
#include <cmath>

#include "ops/attention/engines/pairs/distance_sums.cuh"
#include "ops/attention/engines/pairs/gradient_tile.cuh"
#include "ops/attention/engines/pairs/pairs_mma.cuh"

namespace weft {
namespace {

struct MmaBackwardBlock {
  TileBlock<bf16> tile;
  QuerySide<bf16> of_queries;  // of the class
  View<bf16, 4> to[2];         // of the class: dk and dv, or dq
  View<float, 4> dbias;
};

template <int W>
struct MmaBackwardLayout {
  // Streamed rows that a warp multiplies at once: as many as fit the registers.
  static constexpr int queries = W > 64 ? 16 : tile_columns, keys = W > 64 ? 32 : tile_columns;

  // Owned and streamed rows of two operands, the latter in two stages; two words and two numbers a
  // streamed row.
  static std::size_t bytes(bool distances) {
    return 6 * MmaRows<W>::bytes() + 2 * SharedMemory::bytes<std::uint64_t>(2 * mma_rows) +
           2 * SharedMemory::bytes<float>(2 * mma_rows) +
           SharedMemory::bytes<MmaBackwardBlock>(1) +
           (distances ? SharedMemory::bytes<float>(mma_rows * weight_stride<float>) : 0);
  }
};

// All of the block but where its results go; see set_block(). Returns the class.
template <class Exist>
__device__ i64 set_backward_block(const Pairs<bf16>& all, i64 length, const Exist& exist,
                                  const QuerySide<bf16>& query_side, MmaBackwardBlock& block) {
  set_block(all, length, mma_rows, exist, block.tile);
  const Pairs<bf16>& p = block.tile.p;
  block.of_queries = query_side.of_class(all, p.residue);
  return p.residue;
}

template <int W>
__global__ void __launch_bounds__(tile_threads, 2)
    key_gradients_mma(Pairs<bf16> all, DropoutMask mask, QuerySide<bf16> query_side,
                      View<bf16, 4> all_dk, View<bf16, 4> all_dv) {
  constexpr int at_once = MmaBackwardLayout<W>::queries;

  SharedMemory shared;
  auto& block = *shared.take<MmaBackwardBlock>(1);
  if (threadIdx.x == 0) {
    const auto keys_of = [](const Pairs<bf16>& p, i64 b) { return p.keys(b); };
    const i64 c = set_backward_block(all, all.S(), keys_of, query_side, block);
    block.to[0] = all.of_class(all_dk, c, 1);
    block.to[1] = all.of_class(all_dv, c, 1);
  }
  __syncthreads();
  const auto& [p, keys] = block.tile;
  const MmaRows<W> k(shared), v(shared), q(shared, 2), dout(shared, 2);
  std::uint64_t* const kept = shared.take<std::uint64_t>(2 * mma_rows);
  std::uint64_t* const visible_to = shared.take<std::uint64_t>(2 * mma_rows);
  float* const log_sum = shared.take<float>(2 * mma_rows);
  float* const delta = shared.take<float>(2 * mma_rows);

  const bool biased = p.bias.data != nullptr, dropped = mask.threshold > 0;
  QueryWalk<bf16> walk(p, keys, p.queries(keys.b));
  const View<const bf16, 4>& all_dout = block.of_queries.dout;
  const PairCopies<W> copies(p.q, all_dout, keys);
  const auto begin_next = [&](int stage) {
    const bool more = walk.next();
    if (more) {
      const TileRows tile{keys.b, keys.h, walk.first, walk.count};
      copies.begin(p.q, all_dout, tile, q.tile(stage), dout.tile(stage));
      if (dropped) {
        draw_kept(mask, mask_row(p, keys, walk.first), p.classes, mma_rows,
                  p.first_column + keys.first, kept + stage * mma_rows);
      }
      if (const int t = static_cast<int>(threadIdx.x); t < mma_rows) {
        const int at = stage * mma_rows + t;
        const bool inside = t < walk.count;
        const i64 i = walk.first + t;
        log_sum[at] = inside ? log2_e * block.of_queries.log_sums(keys.b, keys.h, i) : 0.f;
        delta[at] = inside ? block.of_queries.deltas(keys.b, keys.h, i) : 0.f;
        if (!walk.whole) visible_to[at] = walk.word(t);
      }
    }
    cp_async_commit();
    return more;
  };

  load_rows(p.k, keys, k);
  load_rows(p.v, keys, v);
  bool more = begin_next(0);

  WeightedRows<W> key_gradient, value_gradient;
  const float factor = static_cast<float>(mask.factor);
  // That scores are still to be multiplied by.
  const float temperature = biased ? 1.f : p.temperature * log2_e;
  for (int stage = 0; more; stage ^= 1) {
    const StagedTile tile(walk);
    cp_async_wait<0>();
    __syncthreads();
    more = begin_next(stage ^ 1);
    const auto visible = [&](int row, int column) {
      if (row >= keys.count || column >= tile.count) return false;
      return tile.whole || (visible_to[stage * mma_rows + column] >> row & 1) != 0;
    };
    for (int first = 0; first < tile.count; first += at_once) {
      ScoreFragment<at_once> z, da;
      add_products(k, q.tile(stage), first, z);
      add_products(v, dout.tile(stage), first, da);
      if (biased) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = z.rows.of(r);
          if (row >= keys.count) continue;
          const float scale = p.temperature * log2_e;
          const float* const bias = &p.bias(keys.b, keys.h, tile.first + first, keys.first + row);
          z.each_column(bias, p.bias.stride(2), [&](int c, const float* own) {
            if (visible(row, first + z.columns.of(c))) z(r, c) = scale * z(r, c) + log2_e * *own;
          });
        }
      }
      const auto weigh = [&](auto drops) {
#pragma unroll
        for (int c = 0; c < z.own_columns; c += 2) {
          const int at = stage * mma_rows + first + z.columns.of(c);
          const Lanes<float, 2> log_sums = lanes_at<2>(log_sum + at),
                                deltas = lanes_at<2>(delta + at);
#pragma unroll
          for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              const float a = exp2_flushed(z(r, c + n) * temperature - log_sums.at[n]);
              z(r, c + n) = a;
              if constexpr (drops()) {
                const float d = (kept[at + n] >> z.rows.of(r) & 1) != 0 ? factor : 0.f;
                z(r, c + n) *= d;
                da(r, c + n) *= d;
              }
              da(r, c + n) = a * (da(r, c + n) - deltas.at[n]);
            }
          }
        }
      };
      dropped ? weigh(std::true_type{}) : weigh(std::false_type{});
      if (!tile.whole || tile.count < tile_columns || keys.count < mma_rows) {
#pragma unroll
        for (int c = 0; c < z.own_columns; ++c) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            if (!visible(z.rows.of(r), first + z.columns.of(c))) z(r, c) = da(r, c) = 0;
          }
        }
      }
      add_weighted(z, dout.tile(stage), first, value_gradient);
      add_weighted(da, q.tile(stage), first, key_gradient);
    }
  }
  cp_async_wait<0>();  // there may have been no tile
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int c = 0; c < key_gradient.own_columns; ++c) key_gradient(r, c) *= p.temperature;
  }
  store_rows(key_gradient, keys, k, block.to[0]);
  store_rows(value_gradient, keys, v, block.to[1]);
}

template <int W>
__global__ void __launch_bounds__(tile_threads, 2)
    query_gradients_mma(Pairs<bf16> all, DropoutMask mask, QuerySide<bf16> query_side,
                        View<bf16, 4> all_dq, View<float, 4> all_dbias,
                        DistanceSums<float> distances) {
  constexpr int at_once = MmaBackwardLayout<W>::keys;

  SharedMemory shared;
  auto& block = *shared.take<MmaBackwardBlock>(1);
  if (threadIdx.x == 0) {
    const auto queries_of = [](const Pairs<bf16>& p, i64 b) { return p.queries(b); };
    const i64 c = set_backward_block(all, all.N(), queries_of, query_side, block);
    block.to[0] = all.of_class(all_dq, c, 1);
    block.dbias = all.of_class(all.of_class(all_dbias, c, 2), c, 3);
  }
  __syncthreads();
  const auto& [p, queries] = block.tile;
  const MmaRows<W> q(shared), dout(shared);
  const StagedKeys<W> staged(shared);
  const auto& [k, v, kept, visible] = staged;
  float* const weights = distances.sums.data == nullptr
                             ? nullptr
                             : shared.take<float>(mma_rows * weight_stride<float>);

  const bool biased = p.bias.data != nullptr, dropped = mask.threshold > 0;
  KeyWalk<bf16> walk(p, queries, p.keys(queries.b));
  const PairCopies<W> copies(p.k, p.v, queries);
  const auto begin_next = [&](int stage) {
    return staged.begin_next(walk, block.tile, mask, dropped, copies, stage);
  };

  load_rows(p.q, queries, q);
  load_rows(block.of_queries.dout, queries, dout);
  bool more = begin_next(0);

  WeightedRows<W> gradient;
  float log_sum[2] = {}, delta[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = gradient.rows.of(r);
    if (row >= queries.count) continue;
    const i64 i = queries.first + row;
    log_sum[r] = log2_e * block.of_queries.log_sums(queries.b, queries.h, i);
    delta[r] = block.of_queries.deltas(queries.b, queries.h, i);
  }
  const float factor = static_cast<float>(mask.factor);
  // That scores are still to be multiplied by.
  const float temperature = biased ? 1.f : p.temperature * log2_e;
  for (int stage = 0; more; stage ^= 1) {
    const StagedTile tile(walk);
    cp_async_wait<0>();
    __syncthreads();
    more = begin_next(stage ^ 1);
    const bool partial =
        !tile.whole || tile.count < tile_columns || queries.count < mma_rows;
    for (int first = 0; first < tile_columns; first += at_once) {
      ScoreFragment<at_once> z, da;
      add_products(q, k.tile(stage), first, z);
      add_products(dout, v.tile(stage), first, da);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = z.rows.of(r), at = stage * mma_rows + row;
        const i64 i = queries.first + row;
        const std::uint64_t in_tile =
            row < queries.count ? bits_between(0, tile.count) : std::uint64_t{0};
        const std::uint64_t sees =
            z.own_bits(((tile.whole ? ~std::uint64_t{0} : visible[at]) & in_tile) >> first);
        if (biased && row < queries.count) {
          const float scale = p.temperature * log2_e;
          const float* const bias = &p.bias(queries.b, queries.h, i, tile.first + first);
          z.each_column(bias, p.bias.stride(3), [&](int c, const float* own) {
            if (z.has(sees, c)) z(r, c) = scale * z(r, c) + log2_e * *own;
          });
        }
        if (dropped) {
          const std::uint64_t keeps = z.own_bits(kept[at] >> first);
#pragma unroll
          for (int c = 0; c < z.own_columns; ++c) {
            da(r, c) = z.has(keeps, c) ? da(r, c) * factor : 0.f;
          }
        }
#pragma unroll
        for (int c = 0; c < z.own_columns; ++c) {
          const float a = exp2_flushed(z(r, c) * temperature - log_sum[r]);
          z(r, c) = a * (da(r, c) - delta[r]);
        }
        if (partial) {
#pragma unroll
          for (int c = 0; c < z.own_columns; ++c) {
            if (!z.has(sees, c)) z(r, c) = 0;
          }
        }
        if (block.dbias.data != nullptr && row < queries.count) {
          float* const dbias = &block.dbias(queries.b, queries.h, i, tile.first + first);
          z.each_column(dbias, block.dbias.stride(3), [&](int c, float* own) {
            if (z.has(sees, c)) *own += z(r, c);
          });
        }
        if (weights != nullptr) {
#pragma unroll
          for (int c = 0; c < z.own_columns; ++c) {
            weights[row * weight_stride<float> + first + z.columns.of(c)] = z(r, c);
          }
        }
      }
      add_weighted(z, k.tile(stage), first, gradient);
    }
    if (weights != nullptr) {
      const i64 own = queries.first / mma_rows;
      __syncthreads();  // all weights are written; they are not overwritten before the next barrier
      add_diagonals<mma_rows>(weights, &distances.sums(queries.b * p.H() + queries.h, own, 0) +
                                           tile.first - queries.first - (mma_rows - 1) -
                                           distances.first(own));
    }
  }
  cp_async_wait<0>();  // there may have been no tile
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int c = 0; c < gradient.own_columns; ++c) gradient(r, c) *= p.temperature;
  }
  store_rows(gradient, queries, q, block.to[0]);
}

template <int W>
void start_backward(const Cuda& device, const Pairs<bf16>& p, const QuerySide<bf16>& query_side,
                    const View<bf16, 4>& dq, const View<bf16, 4>& dk, const View<bf16, 4>& dv,
                    const BiasGradient<float>& dbias) {
  using Layout = MmaBackwardLayout<W>;
  if (p.S() > 0) {
    start_tiles("pairs", device, tile_grid(p, p.S(), mma_rows, 1, 1), Layout::bytes(false),
                key_gradients_mma<W>, p, p.mask(), query_side, dk, dv);
  }
  if (p.N() == 0) return;
  sum_distances(device, p, mma_rows, dbias, [&](const DistanceSums<float>& distances) {
    start_tiles("pairs", device, tile_grid(p, p.N(), mma_rows, 1, 1),
                Layout::bytes(distances.sums.data != nullptr), query_gradients_mma<W>, p, p.mask(),
                query_side, dq, dbias.pairs, distances);
  });
}

}  // namespace

// Backward takes more than forward.
i64 widest_stored_head(const Cuda& device) {
  const std::size_t room = most_shared(device);
  if (MmaBackwardLayout<most_mma_width>::bytes(true) <= room) return most_mma_width;
  return MmaBackwardLayout<64>::bytes(true) <= room ? 64 : 0;
}

template <>
void PairsBackwardKernels<Cuda, bf16>::backward(const Cuda& device, const Pairs<bf16>& p,
                                                View<const bf16, 4> out,
                                                View<const float, 3> log_sums,
                                                View<const bf16, 4> dout, AddTo, View<bf16, 4> dq,
                                                View<bf16, 4> dk, View<bf16, 4> dv,
                                                BiasGradient<float> dbias) {
  if (p.B() * p.H() == 0) return;
  const Workspace<float> work(device, p.B() * p.H() * p.N());
  const View<float, 3> deltas = work.view(p.B(), p.H(), p.N());
  for_rows("pairs", device, p.B() * p.H() * p.N(), p.M(), RowProducts<bf16>{dout, out, deltas});
  with_mma_width(std::max(p.E(), p.M()), [&](auto columns) {
    start_backward<columns()>(device, p, {log_sums, deltas, dout}, dq, dk, dv, dbias);
  });
}

}  // namespace weft
