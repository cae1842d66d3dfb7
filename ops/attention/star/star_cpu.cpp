// The lists of rings on the CPU.
#include "ops/attention/engines/lists/list_rule_cpu.h"
#include "ops/attention/star/ring.h"

namespace weft {

template <class Device>
void RingKernels<Device>::fill(const Device& device, const RuledLists<Rings>& lists) {
  fill_lists(device, lists);
}

template struct RingKernels<Cpu>;

}  // namespace weft
