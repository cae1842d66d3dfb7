// Lists of tiles of block patterns, on the CPU.
#include <algorithm>

#include "ops/attention/engines/pairs/block_lists.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

// Rows are visited in order, so that each column's runs are too: a column keeps its current
// position.
void fill_columns(const BlockLists& lists, i64 sheet) {
  const BlockPattern& p = lists.pattern;
  const std::int32_t* const rows = lists.starts_of(sheet);
  std::int32_t* const columns = lists.column_starts_of(sheet);
  std::fill(columns, columns + p.tiles() + 1, 0);
  for (std::int32_t at = rows[0]; at < rows[p.tiles()]; ++at) ++columns[lists.runs[at].first];
  lists.sum(columns, sheet);
  for (i64 row = 0; row < p.tiles(); ++row) {
    for (std::int32_t at = rows[row]; at < rows[row + 1]; ++at) {
      const TileRun& run = lists.runs[at];
      lists.column_runs[columns[run.first]++] = {static_cast<std::int32_t>(row), 1, run.mask};
    }
  }
  // Each start now holds the next one's.
  std::copy_backward(columns, columns + p.tiles(), columns + p.tiles() + 1);
  columns[0] = static_cast<std::int32_t>(sheet * p.most);
}

}  // namespace

template <class Device>
void BlockListKernels<Device>::fill(const Device&, const BlockLists& lists) {
  const BlockPattern& p = lists.pattern;
  parallel_for(p.sheets(), p.most * p.width, [&](i64 sheet) {
    for (i64 tile = 0; tile < p.tiles(); ++tile) lists.count_row(sheet, tile);
    lists.sum(lists.starts_of(sheet), sheet);
    const i64 listed = lists.starts_of(sheet)[p.tiles()] - sheet * p.most;
    require(listed <= p.most, "pattern: a head lists {} tiles, and there is room for {}", listed,
            p.most);
    for (i64 tile = 0; tile < p.tiles(); ++tile) lists.fill_row(sheet, tile);
    fill_columns(lists, sheet);
  });
}

template struct BlockListKernels<Cpu>;

}  // namespace weft
