#include "apps/command_line/device_option.h"

#include <charconv>

#include "runtime/allocator.h"
#include "runtime/dispatch.h"

namespace weft {

Device device_named(const std::string& text) {
  if (text == "cpu") return {};
  Device device{DeviceType::cuda, 0};
  const std::string kind = text.substr(0, text.find(':'));
  bool known = kind == "cuda";
  if (known && kind.size() < text.size()) {
    const char *const first = text.data() + kind.size() + 1, *const last = text.data() + text.size();
    const auto [stop, status] = std::from_chars(first, last, device.index);
    known = status == std::errc{} && stop == last && device.index >= 0;
  }
  require(known, "--device: wanted cpu, cuda or cuda:N, got '{}'", text);
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
