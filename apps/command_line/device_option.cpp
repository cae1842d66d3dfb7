#include "apps/command_line/device_option.h"

#include <charconv>

#include "runtime/allocator.h"
#include "runtime/communicator.h"
#include "runtime/cuda/device.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

// Of the devices of a machine each of several ranks takes that of its number there. Every process
// has an emulated device of its own.
int index_among_ranks(const std::string& text) {
  require(text == "cuda",
          "--device {}: each of several ranks takes a device of its own; wanted cuda alone, and "
          "CUDA_VISIBLE_DEVICES chooses among the devices",
          text);
  const std::vector<CudaDevice>& found = cuda_devices().all;
  const int wanted = ranks().on_this_machine(), count = static_cast<int>(found.size());
  if (found.empty() || found[0].emulated) return 0;
  require(wanted <= count,
          "--device cuda: each of {} ranks on this machine wants a device of its own, and there "
          "are {}; start fewer",
          wanted, count);
  return ranks().place_on_this_machine();
}

}  // namespace

Device device_named(const std::string& text) {
  if (text == "cpu") return {};
  Device device{DeviceType::cuda, 0};
  const std::string kind = text.substr(0, text.find(':'));
  bool known = kind == "cuda";
  if (known && kind.size() < text.size()) {
    const char* const first = text.data() + kind.size() + 1;
    const char* const last = text.data() + text.size();
    const auto [stop, status] = std::from_chars(first, last, device.index);
    known = status == std::errc{} && stop == last && device.index >= 0;
  }
  require(known, "--device: wanted cpu, cuda or cuda:N, got '{}'", text);
  if (!ranks().alone()) device.index = index_among_ranks(text);
  try {
    allocator(device);  // throws if the device does not exist
  } catch (const Error& error) {
    fail("--device {}: {}", text, error.what());
  }
  return device;
}

void wait_for(Device device) {
  dispatch_device(device, []<class D>(const D& where) {
    if constexpr (!std::is_same_v<D, Cpu>) synchronize(where);
  });
}

}  // namespace weft
