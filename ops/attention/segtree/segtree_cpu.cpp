// The lists of trees on the CPU.
#include "ops/attention/segtree/tree.h"
#include "runtime/device.h"
#include "runtime/parallel.h"

namespace weft {

template <class Device>
void TreeKernels<Device>::fill(const Device&, const TreeLists& trees) {
  const i64 rows = trees.lists.rows, count = trees.lists.items * rows;
  constexpr i64 work = 100;  // of a row
  parallel_for(count, work, [&](i64 i) { trees.count(i / rows, i % rows); });
  for (i64 list = 0; list < 3 * trees.lists.items; ++list) {
    std::int32_t* const starts = trees.starts_of(int(list % 3), list / 3);
    starts[0] = 0;
    for (i64 row = 0; row < rows; ++row) starts[row + 1] += starts[row];
  }
  parallel_for(count, work, [&](i64 i) { trees.fill(i / rows, i % rows); });
}

template struct TreeKernels<Cpu>;

}  // namespace weft
