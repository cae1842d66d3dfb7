// BigBird's blocks on the CPU.
#include "ops/attention/bigbird/blocks.h"
#include "runtime/device.h"
#include "runtime/parallel.h"

namespace weft {

template <class Device>
void BigBirdKernels<Device>::fill(const Device&, const BigBirdBlocks& blocks) {
  parallel_for(blocks.count(), 100 * blocks.width(), blocks);
}

template struct BigBirdKernels<Cpu>;

}  // namespace weft
