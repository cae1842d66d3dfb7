// Lists of tiles of block patterns, on a CUDA device: a thread for each row of tiles, then one for
// each column, which searches for itself in the lists of all rows. One thread sums a sheet's
// counts.
//
// Bound by latency: a row visits about 6 runs for each of its tiles, a column reads 12 bytes some
// three times for each row, and the threads of a warp read the same rows. Unmeasured.
#include "ops/attention/engines/pairs/block_lists.h"
#include "runtime/cuda/stream.h"

namespace weft {
namespace {

// Counts a row of tiles, or writes it.
struct EachRow {
  BlockLists lists;
  bool fill;
  __device__ void operator()(i64 i) const {
    const i64 tiles = lists.pattern.tiles(), sheet = i / tiles, row = i % tiles;
    fill ? lists.fill_row(sheet, row) : lists.count_row(sheet, row);
  }
};

// The same for a column.
struct EachColumn {
  BlockLists lists;
  bool fill;
  __device__ void operator()(i64 i) const {
    const i64 tiles = lists.pattern.tiles(), sheet = i / tiles, column = i % tiles;
    std::int32_t* const start = lists.column_starts_of(sheet) + column;
    std::int32_t at = fill ? *start : 0;
    for (i64 row = 0; row < tiles; ++row) {
      const TileRun* const run = lists.find(sheet, row, column);
      if (run == nullptr) continue;
      if (fill) lists.column_runs[at] = {static_cast<std::int32_t>(row), 1, run->mask};
      ++at;
    }
    if (!fill) *start = at;
  }
};

struct EachSheet {
  BlockLists lists;
  bool columns;
  __device__ void operator()(i64 sheet) const {
    lists.sum(columns ? lists.column_starts_of(sheet) : lists.starts_of(sheet), sheet);
  }
};

// There are few rows with much work each: with one warp a block they spread over the
// multiprocessors.
constexpr unsigned warp = 32;

template <class F>
__global__ void each_alone(i64 count, F f) {
  const i64 i = i64{blockIdx.x} * warp + threadIdx.x;
  if (i < count) f(i);
}

template <class F>
void for_each(const Cuda& device, i64 count, const F& f) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + warp - 1) / warp);
  start("block lists", device, blocks, warp, 0, each_alone<F>, count, f);
}

}  // namespace

template <class Device>
void BlockListKernels<Device>::fill(const Device& device, const BlockLists& lists) {
  const i64 sheets = lists.pattern.sheets(), rows = sheets * lists.pattern.tiles();
  for_each(device, rows, EachRow{lists, false});
  for_each(device, sheets, EachSheet{lists, false});
  for_each(device, rows, EachRow{lists, true});
  for_each(device, rows, EachColumn{lists, false});
  for_each(device, sheets, EachSheet{lists, true});
  for_each(device, rows, EachColumn{lists, true});
}

template struct BlockListKernels<Cuda>;

}  // namespace weft
