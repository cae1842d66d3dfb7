// BigBird's blocks on a CUDA device: a thread for each, bound by the ten rounds of Philox for every
// four random blocks. Unmeasured.
#include "ops/attention/bigbird/blocks.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

struct FillBlock {
  BigBirdBlocks blocks;
  __device__ void operator()(i64 i) const { blocks(i); }
};

}  // namespace

template <class Device>
void BigBirdKernels<Device>::fill(const Device& device, const BigBirdBlocks& blocks) {
  for_elements("bigbird", device, blocks.count(), FillBlock{blocks});
}

template struct BigBirdKernels<Cuda>;

}  // namespace weft
