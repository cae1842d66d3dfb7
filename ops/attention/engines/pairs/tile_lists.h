// Patterns as data: which tiles of 64 queries by 64 keys are seen, and for partial tiles, which
// pairs. Their construction: tile_list_tensors.h.
#pragma once

#include <cstdint>

#include "runtime/types.h"

namespace weft {

inline constexpr i64 tile_side = 64;

// Bits from … to − 1 of a word.
constexpr std::uint64_t bits_between(i64 from, i64 to) {
  const auto below = [](i64 count) {
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (count < 0 ? 0 : count)) - 1;
  };
  return below(to) & ~below(from);
}

// Transposes a 64 × 64 bit matrix, one row a word, in blocks of 32, 16, … bits (H. S. Warren,
// Hacker's Delight, section 7-3).
constexpr void transpose_bits(std::uint64_t* words) {
  std::uint64_t low = 0xffffffffu;
  for (int by = 32; by > 0; by /= 2, low ^= low << by) {
    for (int i = 0; i < 64; i = (i + by + 1) & ~by) {
      const std::uint64_t moved = ((words[i] >> by) ^ words[i + by]) & low;
      words[i] ^= moved << by;
      words[i + by] ^= moved;
    }
  }
}

// Tiles first … first + count − 1 along a row or a column of tiles. `mask` is the index of their
// bit table, or −1 if all pairs are seen.
struct TileRun {
  std::int32_t first, count, mask;
};

// The lists in kernels. A sheet has a list for every row of tiles and, transposed, for every column
// of tiles; batch item b and head h use sheet (b mod items) heads + h mod heads.
struct TileLists {
  const TileRun *runs = nullptr, *column_runs = nullptr;  // null: no lists; the band is used
  // [sheets, rows + 1], and [sheets, columns + 1].
  const std::int32_t *starts = nullptr, *column_starts = nullptr;
  // [masks, 2, 64]: bit j of word i says whether query i of the tile sees key j; then bit i of word
  // j.
  const std::uint64_t* masks = nullptr;
  i64 items = 1, heads = 1, rows = 0, columns = 0;  // of tiles

  constexpr bool any() const { return runs != nullptr; }
  constexpr i64 sheet(i64 b, i64 h) const { return b % items * heads + h % heads; }

  struct Runs {
    const TileRun *from, *to;
    constexpr const TileRun* begin() const { return from; }
    constexpr const TileRun* end() const { return to; }
  };
  constexpr Runs row(i64 b, i64 h, i64 tile) const {
    const std::int32_t* const at = starts + sheet(b, h) * (rows + 1) + tile;
    return {runs + at[0], runs + at[1]};
  }
  constexpr Runs column(i64 b, i64 h, i64 tile) const {
    const std::int32_t* const at = column_starts + sheet(b, h) * (columns + 1) + tile;
    return {column_runs + at[0], column_runs + at[1]};
  }
  constexpr const std::uint64_t* by_query(std::int32_t mask) const {
    return mask < 0 ? nullptr : masks + i64{mask} * 2 * tile_side;
  }
  constexpr const std::uint64_t* by_key(std::int32_t mask) const {
    return mask < 0 ? nullptr : masks + (i64{mask} * 2 + 1) * tile_side;
  }
};

}  // namespace weft
