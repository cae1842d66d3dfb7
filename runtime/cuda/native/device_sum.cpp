#include "runtime/cuda/device_sum.h"

#include "runtime/error.h"
#include "runtime/module.h"

namespace weft {

DeviceSum* device_sum(const Cuda& device, Communicator& ranks) {
  static DeviceSum* const sum = [&] {
    const ModuleFunction make = function_of_module("libweft_nccl.so", "weft_nccl_sum");
    require(make.found != nullptr,
            "several ranks on CUDA devices sum their gradients by NCCL, and the module that calls "
            "it cannot be loaded ({}); install NCCL, or name its folder by -Dnccl_dir, and "
            "configure with -Dnccl=enabled",
            make.reason);
    return reinterpret_cast<MakeDeviceSum>(make.found)(device, ranks);
  }();
  return sum;
}

}  // namespace weft
