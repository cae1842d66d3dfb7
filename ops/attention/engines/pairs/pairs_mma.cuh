// What the kernels of the engine for pairs on tensor cores share: tiles that arrive while others
// are multiplied. For .cu files.
#pragma once

#include "ops/attention/engines/pairs/pairs_tile.cuh"
#include "ops/attention/mma_tile.cuh"

namespace weft {

// Exponentials are powers of two.
inline constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

// A tile of the walk whose rows are in, or on their way to, one of two stages of shared memory.
struct StagedTile {
  i64 first = 0;
  int count = 0;
  bool whole = true;

  template <class T>
  __device__ explicit StagedTile(const TileWalk<T>& walk)
      : first(walk.first), count(walk.count), whole(walk.whole) {}
};

// Tiles of two operands of one head, x and y, copied one after the other.
template <int W>
struct PairCopies {
  bool in_words;
  RowCopies<W> of_x, of_y;

  __device__ PairCopies(const View<const bf16, 4>& x, const View<const bf16, 4>& y,
                        const TileRows& own)
      : in_words(has_words(x) && has_words(y)), of_x(x, own.b, own.h), of_y(y, own.b, own.h) {}

  __device__ __forceinline__ void begin(const View<const bf16, 4>& x, const View<const bf16, 4>& y,
                                        const TileRows& rows, const MmaRows<W>& to_x,
                                        const MmaRows<W>& to_y) const {
    if (in_words) {
      of_x.begin(rows.first, rows.count, to_x);
      of_y.begin(rows.first, rows.count, to_y);
    } else {
      load_elements(x, rows, to_x);
      load_elements(y, rows, to_y);
    }
  }
};

// Tiles of keys and values that a block of 64 G queries streams, in two stages, and which of their
// weights are kept and, of a partial tile, seen: a word of 64 bits for each query.
template <int W, int G = 1>
struct StagedKeys {
  static constexpr int queries = G * mma_rows;
  MmaRows<W> k, v;
  std::uint64_t *kept, *visible;

  static std::size_t bytes() {
    return 4 * MmaRows<W>::bytes() + 2 * SharedMemory::bytes<std::uint64_t>(2 * queries);
  }
  __device__ explicit StagedKeys(SharedMemory& shared)
      : k(shared, 2),
        v(shared, 2),
        kept(shared.take<std::uint64_t>(2 * queries)),
        visible(shared.take<std::uint64_t>(2 * queries)) {}

  // Begins to load the walk's next tile, if there is one; to be waited for.
  template <bool lists>
  __device__ __forceinline__ bool begin_next(KeyWalk<bf16, lists>& walk,
                                             const TileBlock<bf16>& own,
                                             const DropoutMask& mask, bool dropped,
                                             const PairCopies<W>& copies, int stage) const {
    const auto& [p, rows] = own;
    const bool more = walk.next();
    if (more) {
      const TileRows tile{rows.b, rows.h, walk.first, walk.count};
      copies.begin(p.k, p.v, tile, k.tile(stage), v.tile(stage));
      if (dropped || !walk.whole) {
        if (dropped) {
          draw_kept(mask, mask_row(p, rows, rows.first), p.classes, queries,
                    p.first_column + walk.first, kept + stage * queries);
        }
        if (const int row = static_cast<int>(threadIdx.x); !walk.whole && row < queries) {
          visible[stage * queries + row] = walk.word(row);
        }
      }
    }
    cp_async_commit();
    return more;
  }
};

}  // namespace weft
