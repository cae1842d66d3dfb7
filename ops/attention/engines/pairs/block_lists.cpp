// Memory for lists of tiles of block patterns.
#include "ops/attention/engines/pairs/tile_list_tensors.h"

#include "runtime/dispatch.h"

namespace weft {

TileListTensors tiles_of_blocks(const BlockPattern& pattern, Device device) {
  const i64 sheets = pattern.sheets(), most = sheets * pattern.most;
  require(most < i64{1} << 31,
          "pattern: {} tiles in {} sheets are more than 2³¹; use fewer batch items or heads at "
          "once, or larger blocks",
          most, sheets);
  const auto integers = [&](const Shape& shape) {
    return Tensor::empty(shape, DType::i32, device);
  };
  const TileListTensors lists{
      integers({sheets * (pattern.tiles() + 1)}),
      integers({most, 3}),
      integers({sheets * (pattern.tiles() + 1)}),
      integers({most, 3}),
      Tensor::empty({pattern.whole_tiles() ? 0 : most * 2 * tile_side}, DType::i64, device),
      pattern.items,
      pattern.heads,
      pattern.tiles(),
      pattern.tiles()};
  dispatch_device(device, [&](auto place) {
    BlockListKernels<decltype(place)>::fill(
        place,
        {pattern, lists.starts.data<std::int32_t>(), lists.column_starts.data<std::int32_t>(),
         reinterpret_cast<TileRun*>(lists.runs.bytes()),
         reinterpret_cast<TileRun*>(lists.column_runs.bytes()),
         reinterpret_cast<std::uint64_t*>(lists.masks.bytes())});
  });
  return lists;
}

double bytes_of_block_lists(const BlockPattern& pattern) {
  const double sheets = double(pattern.sheets()), most = sheets * double(pattern.most);
  const double starts = sheets * double(pattern.tiles() + 1) * sizeof(std::int32_t);
  const double masks = pattern.whole_tiles() ? 0 : 2 * tile_side * sizeof(std::uint64_t);
  return 2 * (starts + most * sizeof(TileRun)) + most * masks;
}

}  // namespace weft
