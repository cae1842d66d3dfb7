// CUDA kernel of the engine for pairs on tensor cores, forward, with storage in bf16; the equations
// are in pairs.h, the tiles in mma_tile.cuh and pairs_tile.cuh. As T. Dao, "FlashAttention-2:
// Faster Attention with Better Parallelism and Work Partitioning", arXiv 2307.08691.
//
// A block owns 64 G queries of one head, a warp 16 G of them, and streams over tiles of 64 keys.
// While one tile is multiplied the next one arrives (cp.async) in the other of two stages. The
// weights are rounded to bf16 in place, where they are the left side of the product with v; their
// sums are f32, of weights that are not rounded. One barrier a tile: behind it the tile is there,
// and all warps have left the other stage. If there are few queries, several blocks share their
// keys (key_shares.cuh).
//
// By count, for heads of 64, four warps and one tile take of a multiprocessor of compute capability
// 9.0, in cycles. The instructions are those of nvcc 13 along a tile without bias, mask and
// dropout, counted in what `nvdisasm -c` prints of its cubin; bench/gpu/registers lists the
// registers.
//
//                                                                              G = 1  G = 2
//     schedulers: instructions of a warp                                         380    580
//     tensor cores at their peak: 64 G mma.sync of 2,048 multiply-adds a warp    256    512
//     exponentials: 32 G a lane                                                  256    512
//     shared memory: 32 ldmatrix of 512 bytes a warp, and the next tile          640    640
//     resident blocks, by registers                                                3      2
//
// So G = 1 is bound by shared memory. With G = 2 what ldmatrix brings is multiplied twice, for
// twice the queries. It is for whole bands of heads of 33 columns or more: tiles of lists are those
// of 64 queries, of a narrow window 128 queries see more tiles in part, and few blocks do not fill
// a device. All reads and writes of tiles are free of bank conflicts and move whole sectors, where
// rows are words of 16 bytes (a test counts).
//
// Heads wider than 128 columns are computed by the kernels of pairs.cu, in f32.
#include <cmath>

#include "ops/attention/engines/pairs/key_shares.cuh"
#include "ops/attention/engines/pairs/pairs_mma.cuh"

namespace weft {
namespace {

template <class Out>
struct MmaForwardBlock {
  TileBlock<bf16> tile;
  View<Out, 4> out;  // of the class
  View<float, 3> log_sums;
};

template <int W, int G>
struct MmaForwardLayout {
  static std::size_t bytes() {
    return G * MmaRows<W>::bytes() + StagedKeys<W, G>::bytes() +
           SharedMemory::bytes<MmaForwardBlock<float>>(1);
  }
};

// Resident blocks of a multiprocessor, by registers.
template <int W, int G>
inline constexpr int forward_mma_blocks = G == 1 && W <= 64 ? 3 : 2;

// As raise() of pairs.cu, for rows with these largest scores.
template <int W, int G>
__device__ void raise_mma(const float (&largest_of_lane)[2 * G], float (&most)[2 * G],
                          float (&sum)[2 * G], WeightedRows<W, G>& o) {
#pragma unroll
  for (int r = 0; r < o.own_rows; ++r) {
    const float largest = o.template over_row<Largest>(largest_of_lane[r]);
    if (!(largest > most[r] + slack)) continue;
    const float correction = exp2_flushed(most[r] - largest);
    most[r] = largest;
    sum[r] *= correction;
#pragma unroll
    for (int c = 0; c < o.own_columns; ++c) o(r, c) *= correction;
  }
}

// Item b of share s of the keys is item s B + b of all_out, which is f32 if there are several, and
// of all_log_sums.
template <int W, int G, class Out>
__global__ void __launch_bounds__(tile_threads, forward_mma_blocks<W, G>)
    forward_mma(Pairs<bf16> all, DropoutMask mask, View<Out, 4> all_out,
                View<float, 3> all_log_sums) {
  constexpr float none = -std::numeric_limits<float>::infinity();
  constexpr int rows = G * mma_rows;
  // As many as fit the registers: queries, and columns of a tile whose scores are computed at once.
  constexpr bool holds_queries = W <= 64;
  constexpr int at_once = G * W <= 128 ? tile_columns : tile_columns / 2;

  SharedMemory shared;
  auto& block = *shared.take<MmaForwardBlock<Out>>(1);
  if (threadIdx.x == 0) {
    set_block(
        all, all.N(), rows, [](const Pairs<bf16>& p, i64 b) { return p.queries(b); },
        block.tile);
    block.out = all.of_class(all_out, block.tile.p.residue, 1);
    block.log_sums = all.of_class(all_log_sums, block.tile.p.residue, 2);
  }
  __syncthreads();
  const auto& [p, queries] = block.tile;
  const MmaRows<W> q(shared, G);
  const StagedKeys<W, G> staged(shared);
  const auto& [k, v, kept, visible] = staged;

  const KeyShare share{blockIdx.z, gridDim.z};
  const bool biased = p.bias.data != nullptr, dropped = mask.threshold > 0;
  KeyWalk<bf16, G == 1> walk(p, queries, p.keys(queries.b), share);
  const PairCopies<W> copies(p.k, p.v, queries);
  const auto begin_next = [&](int stage) {
    return staged.begin_next(walk, block.tile, mask, dropped, copies, stage);
  };

#pragma unroll
  for (int first = 0; first < rows; first += mma_rows) {
    const int count = rows_within(first, queries.count, mma_rows);
    load_rows(p.q, {queries.b, queries.h, queries.first + first, count}, q.from(first));
  }
  cp_async_commit();
  bool more = begin_next(0);
  LeftFragment<G> held[holds_queries ? W / 16 : 1];
  if constexpr (holds_queries) {
    cp_async_wait<1>();
    __syncthreads();
#pragma unroll
    for (int e = 0; e < W / 16; ++e) load_left(q, e, held[e]);
  }

  WeightedRows<W, G> o;
  float most[2 * G], sum[2 * G] = {};
#pragma unroll
  for (int r = 0; r < o.own_rows; ++r) most[r] = none;
  const float factor = static_cast<float>(mask.factor);
  // That scores are still to be multiplied by.
  const float temperature = biased ? 1.f : p.temperature * log2_e;
  for (int stage = 0; more; stage ^= 1) {
    const StagedTile tile(walk);
    cp_async_wait<0>();
    __syncthreads();
    more = begin_next(stage ^ 1);
#pragma unroll 1
    for (int first = 0; first < tile_columns; first += at_once) {
      ScoreFragment<at_once, G> z;
      if constexpr (holds_queries) {
#pragma unroll
        for (int e = 0; e < W / 16; ++e) add_products(held[e], k.tile(stage), first, e, z);
      } else {
        add_products(q, k.tile(stage), first, z);
      }
      if (biased || !tile.whole || tile.count < tile_columns) {
#pragma unroll
        for (int r = 0; r < z.own_rows; ++r) {
          const int row = z.rows.of(r);
          const std::uint64_t sees =
              z.own_bits(((tile.whole ? ~std::uint64_t{0} : visible[stage * rows + row]) &
                          bits_between(0, tile.count)) >>
                         first);
          if (biased && row < queries.count) {
            const float scale = p.temperature * log2_e;
            const float* const bias =
                &p.bias(queries.b, queries.h, queries.first + row, tile.first + first);
            z.each_column(bias, p.bias.stride(3), [&](int c, const float* own) {
              if (z.has(sees, c)) z(r, c) = scale * z(r, c) + log2_e * *own;
            });
          }
#pragma unroll
          for (int c = 0; c < z.own_columns; ++c) {
            if (!z.has(sees, c)) z(r, c) = none;
          }
        }
      }
      float largest[2 * G];
      bool grows = false;
#pragma unroll
      for (int r = 0; r < z.own_rows; ++r) {
        largest[r] = z(r, 0);
#pragma unroll
        for (int c = 1; c < z.own_columns; ++c) largest[r] = std::fmax(largest[r], z(r, c));
        largest[r] *= temperature;
        grows = grows || largest[r] > most[r] + slack;
      }
      if (__any_sync(0xffffffffu, grows)) raise_mma<W, G>(largest, most, sum, o);
#pragma unroll
      for (int r = 0; r < z.own_rows; ++r) {
        const float shift = most[r] == none ? 0.f : most[r];
#pragma unroll
        for (int c = 0; c < z.own_columns; ++c) {
          z(r, c) = exp2_flushed(z(r, c) * temperature - shift);
          sum[r] += z(r, c);
        }
        if (dropped) {
          const std::uint64_t keeps = z.own_bits(kept[stage * rows + z.rows.of(r)] >> first);
#pragma unroll
          for (int c = 0; c < z.own_columns; ++c) {
            z(r, c) = z.has(keeps, c) ? z(r, c) * factor : 0.f;
          }
        }
      }
      add_weighted(z, v.tile(stage), first, o);
    }
  }

  cp_async_wait<0>();  // there may have been no tile
  __syncthreads();
  const i64 item = share.number * p.B() + queries.b;
#pragma unroll
  for (int r = 0; r < o.own_rows; ++r) {
    const int row = o.rows.of(r);
    const i64 i = queries.first + row;
    const float total = o.template over_row<Added>(sum[r]);
    const bool empty = total == 0 || row >= queries.count;  // a sum of NaN is not 0: NaN is kept
    const float inverse = 1 / total;
#pragma unroll
    for (int c = 0; c < o.own_columns; ++c) o(r, c) = empty ? 0.f : o(r, c) * inverse;
    if (i < p.N() && o.columns.of(0) == 0) {
      block.log_sums(item, queries.h, i) =
          empty ? -none : (most[r] + std::log2(total)) * ln_2;
    }
  }
  store_rows(o, {item, queries.h, queries.first, queries.count}, q, block.out);
}

// Whether blocks of 128 queries pay, by the shape alone: they fill a device (two on each
// multiprocessor), have queries for most of their rows, and windows are not narrower than they are.
inline bool wide_blocks_pay(const Pairs<bf16>& p, i64 blocks) {
  constexpr i64 enough = 256, least_keys = 4 * tile_columns;
  const i64 queries = p.longest_class(p.N()), keys = p.longest_class(p.S());
  return !p.lists.any() && blocks >= enough && queries > mma_rows &&
         p.band.count(queries / 2, keys) >= least_keys;
}

}  // namespace

template <>
void PairsKernels<Cuda, bf16>::forward(const Cuda& device, const Pairs<bf16>& p,
                                       View<const float, 3> before, View<bf16, 4> out,
                                       View<float, 3> log_sums) {
  if (p.B() * p.H() * p.N() == 0) return;
  with_mma_width(std::max(p.E(), p.M()), [&](auto columns) {
    constexpr int W = columns();
    if constexpr (W >= 64) {
      const dim3 grid = tile_grid(p, p.N(), 2 * mma_rows, 1, 1);
      if (wide_blocks_pay(p, grid.x)) {
        return start_tiles("pairs", device, grid, MmaForwardLayout<W, 2>::bytes(),
                           forward_mma<W, 2, bf16>, p, p.mask(), out, log_sums);
      }
    }
    dim3 grid = tile_grid(p, p.N(), mma_rows, 1, 1);
    const auto run = [&](auto kernel, const auto& to, const View<float, 3>& sums) {
      start_tiles("pairs", device, grid, MmaForwardLayout<W, 1>::bytes(), kernel, p, p.mask(), to,
                  sums);
    };
    const i64 shares = key_shares(p, grid.x);
    if (shares == 1) return run(forward_mma<W, 1, bf16>, out, log_sums);
    grid.z = static_cast<unsigned>(shares);
    in_shares<float>(device, p, shares, before, out, log_sums,
                     [&](const View<float, 4>& shared_out, const View<float, 3>& shared_sums) {
                       run(forward_mma<W, 1, float>, shared_out, shared_sums);
                     });
  });
}

}  // namespace weft
