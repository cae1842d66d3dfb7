// Lists of tiles of block patterns: a table says which blocks of keys each block of queries sees.
// The lists are built on the device that has the table, in memory whose size the host knows: a
// pattern may depend on lengths in the memory of a CUDA device, and nothing is read back.
//
// A tile of 64 × 64 is listed if some of its pairs are seen. Blocks of a multiple of 64 positions
// are whole tiles. Otherwise a partial tile has a bit table of its own, 1 KB, so that a list with
// blocks of less than 64 is long, and most pairs of its tiles are hidden.
#pragma once

#include "ops/attention/engines/pairs/tile_lists.h"

namespace weft {

// Blocks first … first + count − 1; none where count is 0.
struct BlockRun {
  std::int32_t first, count;
};

// A sheet has `width` runs for each block of queries, in any order; they may overlap. The last of
// the `blocks` blocks may have fewer than `size` positions.
struct BlockPattern {
  const BlockRun* runs = nullptr;  // [items, heads, blocks, width]
  i64 items = 1, heads = 1, blocks = 0, width = 0;
  i64 size = 1;       // positions of a block
  i64 positions = 0;  // of queries, and of keys
  i64 most = 0;       // the most tiles of a sheet

  constexpr i64 sheets() const { return items * heads; }
  constexpr i64 tiles() const { return (positions + tile_side - 1) / tile_side; }
  constexpr bool whole_tiles() const { return size % tile_side == 0; }

  constexpr const BlockRun* row(i64 sheet, i64 block) const {
    return runs + (sheet * blocks + block) * width;
  }
  // Blocks that a tile of queries overlaps.
  constexpr i64 first_block(i64 tile) const { return tile * tile_side / size; }
  constexpr i64 last_block(i64 tile) const { return block_of(tile * tile_side + tile_side - 1); }
  // Positions beyond the last one count as the last block's, so that a tile there can be whole.
  constexpr i64 block_of(i64 i) const { return i / size < blocks ? i / size : blocks - 1; }
  constexpr i64 begin(const BlockRun& run) const { return run.first * size; }
  constexpr i64 end(const BlockRun& run) const {
    return run.first + run.count < blocks ? (run.first + run.count) * size : tiles() * tile_side;
  }

  // The first tile of keys from `from` on that a tile of queries sees; tiles() if there is none.
  constexpr i64 next_tile(i64 sheet, i64 tile, i64 from) const {
    i64 next = tiles();
    for (i64 t = first_block(tile); t <= last_block(tile); ++t) {
      for (const BlockRun *run = row(sheet, t), *last = run + width; run != last; ++run) {
        if (run->count == 0 || end(*run) <= from * tile_side) continue;
        const i64 first = begin(*run) / tile_side;
        const i64 seen = first < from ? from : first;
        if (seen < next) next = seen;
      }
    }
    return next;
  }
  // Bit j: whether block t of queries sees key j of a tile.
  constexpr std::uint64_t word(i64 sheet, i64 t, i64 tile) const {
    std::uint64_t bits = 0;
    for (const BlockRun *run = row(sheet, t), *last = run + width; run != last; ++run) {
      if (run->count == 0) continue;
      bits |= bits_between(begin(*run) - tile * tile_side, end(*run) - tile * tile_side);
    }
    return bits;
  }
};

// The output. Rows are filled in three passes: all are counted, then each sheet's counts become its
// starts, then the tiles are written.
struct BlockLists {
  BlockPattern pattern;
  std::int32_t *starts = nullptr, *column_starts = nullptr;
  TileRun *runs = nullptr, *column_runs = nullptr;
  std::uint64_t* masks = nullptr;

  constexpr std::int32_t* starts_of(i64 sheet) const {
    return starts + sheet * (pattern.tiles() + 1);
  }
  constexpr std::int32_t* column_starts_of(i64 sheet) const {
    return column_starts + sheet * (pattern.tiles() + 1);
  }

  constexpr void count_row(i64 sheet, i64 tile) const {
    std::int32_t count = 0;
    for (i64 j = pattern.next_tile(sheet, tile, 0); j < pattern.tiles();
         j = pattern.next_tile(sheet, tile, j + 1)) {
      ++count;
    }
    starts_of(sheet)[tile] = count;
  }
  // Replaces the counts of a sheet by the starts of its rows.
  constexpr void sum(std::int32_t* counts, i64 sheet) const {
    auto next = static_cast<std::int32_t>(sheet * pattern.most);
    for (i64 tile = 0; tile <= pattern.tiles(); ++tile) {
      const std::int32_t count = tile < pattern.tiles() ? counts[tile] : 0;
      counts[tile] = next;
      next += count;
    }
  }
  constexpr void fill_row(i64 sheet, i64 tile) const {
    std::int32_t at = starts_of(sheet)[tile];
    for (i64 j = pattern.next_tile(sheet, tile, 0); j < pattern.tiles();
         j = pattern.next_tile(sheet, tile, j + 1), ++at) {
      const bool whole = pattern.whole_tiles() || !fill_mask(sheet, tile, j, at);
      runs[at] = {static_cast<std::int32_t>(j), 1, whole ? -1 : at};
    }
  }
  // Whether the tile needs a bit table.
  constexpr bool fill_mask(i64 sheet, i64 tile, i64 column, std::int32_t at) const {
    std::uint64_t* const by_query = masks + i64{at} * 2 * tile_side;
    std::uint64_t word = 0, all = ~std::uint64_t{0};
    for (i64 i = 0, last = -1; i < tile_side; ++i) {
      const i64 t = pattern.block_of(tile * tile_side + i);
      if (t != last) word = pattern.word(sheet, t, column);
      last = t;
      by_query[i] = by_query[tile_side + i] = word;
      all &= word;
    }
    transpose_bits(by_query + tile_side);
    return all != ~std::uint64_t{0};
  }
  // The run of row `tile` that contains a column; null if there is none.
  constexpr const TileRun* find(i64 sheet, i64 tile, i64 column) const {
    const std::int32_t* const at = starts_of(sheet) + tile;
    const TileRun *from = runs + at[0], *to = runs + at[1];
    while (from != to) {
      const TileRun* const middle = from + (to - from) / 2;
      if (middle->first == column) return middle;
      if (middle->first < column)
        from = middle + 1;
      else
        to = middle;
    }
    return nullptr;
  }
};

template <class Device>
struct BlockListKernels {
  // Writes everything that `lists` points to.
  static void fill(const Device&, const BlockLists& lists);
};

}  // namespace weft
