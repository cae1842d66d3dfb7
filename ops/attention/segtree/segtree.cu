// The lists of trees on a CUDA device. The thread of the root writes the edges of all leaves.
#include "ops/attention/engines/lists/list_rule.cuh"
#include "ops/attention/segtree/tree.h"

namespace weft {

template <class Device>
void TreeKernels<Device>::fill(const Device& device, const RuledLists<Trees>& lists) {
  fill_lists("segtree", device, lists);
}

template struct TreeKernels<Cuda>;

}  // namespace weft
