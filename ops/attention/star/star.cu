// The lists of rings on a CUDA device. The thread of the relay writes an edge for every satellite.
#include "ops/attention/engines/lists/list_rule.cuh"
#include "ops/attention/star/ring.h"

namespace weft {

template <class Device>
void RingKernels<Device>::fill(const Device& device, const RuledLists<Rings>& lists) {
  fill_lists("star", device, lists);
}

template struct RingKernels<Cuda>;

}  // namespace weft
