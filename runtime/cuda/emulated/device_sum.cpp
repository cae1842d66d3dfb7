#include "runtime/cuda/device_sum.h"

namespace weft {

DeviceSum* device_sum(const Cuda&, Communicator&) { return nullptr; }

}  // namespace weft
