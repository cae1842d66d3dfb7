// The lists of trees on the CPU.
#include "ops/attention/engines/lists/list_rule_cpu.h"
#include "ops/attention/segtree/tree.h"

namespace weft {

template <class Device>
void TreeKernels<Device>::fill(const Device& device, const RuledLists<Trees>& lists) {
  fill_lists(device, lists);
}

template struct TreeKernels<Cpu>;

}  // namespace weft
