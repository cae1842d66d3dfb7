// Where bytes live and who computes on them.
#pragma once

#include <cstdint>

namespace weft {

enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

constexpr const char* name_of(DeviceType type) {
  return type == DeviceType::cpu ? "cpu" : "cuda";
}

// The Device argument of kernels for the CPU. Kernels are static members of structs over a device
// and an element type.
struct Cpu {};
struct Cuda;  // runtime/cuda/device.h

}  // namespace weft
