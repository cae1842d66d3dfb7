// Construction of lists of tiles; their format: tile_lists.h.
#include "ops/attention/engines/pairs/tile_list_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "runtime/error.h"

namespace weft {
namespace {

struct MaskedTile {
  i64 row, column;
  std::int32_t mask;
};

using Words = std::array<std::uint64_t, tile_side>;

i64 tiles_along(i64 positions) { return (positions + tile_side - 1) / tile_side; }

template <class T>
Tensor copied(const std::vector<T>& from, const Shape& shape, DType type, Device device) {
  const Tensor tensor = Tensor::empty(shape, type);
  // An empty list has no data to copy from.
  if (!from.empty()) std::memcpy(tensor.bytes(), from.data(), from.size() * sizeof(T));
  return tensor.to(device);
}

// Appends the runs of one sheet, by rows of tiles (or by columns, with rows and columns exchanged
// before), and the start of each row.
void append_runs(std::vector<MaskedTile> tiles, i64 rows, std::vector<std::int32_t>& starts,
                 std::vector<TileRun>& runs) {
  std::sort(tiles.begin(), tiles.end(), [](const MaskedTile& a, const MaskedTile& b) {
    return a.row != b.row ? a.row < b.row : a.column < b.column;
  });
  auto tile = tiles.begin();
  for (i64 row = 0; row < rows; ++row) {
    starts.push_back(static_cast<std::int32_t>(runs.size()));
    const std::size_t begin = runs.size();
    for (; tile != tiles.end() && tile->row == row; ++tile) {
      const auto column = static_cast<std::int32_t>(tile->column);
      if (tile->mask < 0 && runs.size() > begin && runs.back().mask < 0 &&
          runs.back().first + runs.back().count == column) {
        ++runs.back().count;
      } else {
        runs.push_back({column, 1, tile->mask});
      }
    }
  }
  starts.push_back(static_cast<std::int32_t>(runs.size()));
}

// Collects tiles on the CPU, row by row; equal bit tables are stored once.
struct TileListBuilder {
  i64 items, heads, rows, columns;
  std::vector<std::vector<MaskedTile>> sheets;
  std::vector<Words> tables = {};
  std::map<Words, std::int32_t> known = {};

  TileListBuilder(i64 items, i64 heads, i64 queries, i64 keys)
      : items(items),
        heads(heads),
        rows(tiles_along(queries)),
        columns(tiles_along(keys)),
        sheets(items * heads) {}

  // Adds one tile of a sheet with the words of its queries. Each tile at most once, in any order; a
  // tile without any pair is skipped.
  void add(i64 sheet, i64 row, i64 column, const Words& words) {
    if (std::ranges::all_of(words, [](std::uint64_t word) { return word == 0; })) return;
    std::int32_t mask = -1;
    if (!std::ranges::all_of(words, [](std::uint64_t word) { return word == ~0ull; })) {
      const auto [at, fresh] = known.emplace(words, static_cast<std::int32_t>(tables.size()));
      if (fresh) tables.push_back(words);
      mask = at->second;
    }
    sheets[sheet].push_back({row, column, mask});
  }

  TileListTensors build(Device device) const {
    std::vector<std::int32_t> starts, column_starts;
    std::vector<TileRun> runs, column_runs;
    for (const std::vector<MaskedTile>& sheet : sheets) {
      append_runs(sheet, rows, starts, runs);
      std::vector<MaskedTile> turned = sheet;
      for (MaskedTile& tile : turned) std::swap(tile.row, tile.column);
      append_runs(std::move(turned), columns, column_starts, column_runs);
    }
    std::vector<std::uint64_t> masks;
    for (const Words& words : tables) {
      Words turned = words;
      transpose_bits(turned.data());
      masks.insert(masks.end(), words.begin(), words.end());
      masks.insert(masks.end(), turned.begin(), turned.end());
    }
    const auto size = [](const auto& list) { return static_cast<i64>(list.size()); };
    return {copied(starts, {size(starts)}, DType::i32, device),
            copied(runs, {size(runs), 3}, DType::i32, device),
            copied(column_starts, {size(column_starts)}, DType::i32, device),
            copied(column_runs, {size(column_runs), 3}, DType::i32, device),
            copied(masks, {size(masks)}, DType::i64, device),
            items,
            heads,
            rows,
            columns};
  }
};

// The keys of a tile that a query sees by its row of a mask. Keys beyond the last one count as the
// last one, so that a tile at the edge can be whole.
std::uint64_t word_of(const std::uint8_t* row, const MaskedPairs& pairs, i64 query, i64 first) {
  std::uint64_t word = 0;
  const i64 keys = std::min(tile_side, pairs.keys - first);
  for (i64 j = 0; j < keys; ++j) {
    word |= std::uint64_t{row[(first + j) / pairs.block] != 0} << j;
  }
  if (pairs.causal) word &= bits_between(0, query + 1 - first);
  if (word >> (keys - 1) != 0) word |= bits_between(keys, tile_side);
  return word;
}

}  // namespace

TileLists TileListTensors::lists() const {
  // An empty tensor has no memory, and null would mean no lists at all.
  static constexpr TileRun none{};
  const auto runs_of = [](const Tensor& tensor) {
    return tensor.count() == 0 ? &none : reinterpret_cast<const TileRun*>(tensor.bytes());
  };
  return {runs_of(runs),
          runs_of(column_runs),
          starts.data<std::int32_t>(),
          column_starts.data<std::int32_t>(),
          masks.count() == 0 ? nullptr : reinterpret_cast<const std::uint64_t*>(masks.bytes()),
          items,
          heads,
          rows,
          columns};
}

TileListTensors tiles_of_mask(const Tensor& mask, const MaskedPairs& pairs, Device device) {
  const int rank = mask.rank();
  const i64 rows = pairs.rows(), columns = pairs.columns();
  require(
      mask.dtype() == DType::u8 && rank >= 2 && rank <= 4 && mask.size(-2) == rows &&
          mask.size(-1) == columns,
      "pattern: wanted a mask of bytes [{0}, {1}], [H, {0}, {1}] or [B, H, {0}, {1}], got {2} {3}",
      rows, columns, name_of(mask.dtype()), mask.shape());
  const i64 heads = rank > 2 ? mask.size(-3) : 1, items = rank > 3 ? mask.size(0) : 1;
  const Tensor packed = mask.to(Device{}).packed();
  const auto* const seen = packed.data<std::uint8_t>();
  TileListBuilder builder(items, heads, pairs.queries, pairs.keys);
  for (i64 sheet = 0; sheet < items * heads; ++sheet) {
    for (i64 row = 0; row < tiles_along(pairs.queries); ++row) {
      for (i64 column = 0; column < tiles_along(pairs.keys); ++column) {
        Words words = {};
        for (i64 i = 0, last = -1; i < tile_side; ++i) {
          const i64 query = std::min(row * tile_side + i, pairs.queries - 1);
          const i64 of_mask = query / pairs.block;
          const bool same = of_mask == last && (!pairs.causal || query < row * tile_side + i);
          words[i] = same ? words[i - 1]
                          : word_of(seen + (sheet * rows + of_mask) * columns, pairs, query,
                                    column * tile_side);
          last = of_mask;
        }
        builder.add(sheet, row, column, words);
      }
    }
  }
  return builder.build(device);
}

}  // namespace weft
