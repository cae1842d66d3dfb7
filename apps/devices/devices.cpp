// devices: lists the devices that this build supports and those that are available.
#include <fmt/core.h>
#include <hwy/targets.h>

#include "apps/command_line/options.h"
#include "apps/command_line/output.h"
#include "runtime/amx.h"
#include "runtime/cuda/device.h"
#include "runtime/dispatch.h"
#include "runtime/matmul.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace weft {
namespace {

void print_cuda() {
  if constexpr (has_cuda) {
    const CudaDevices& found = cuda_devices();
    fmt::print("cuda  compiled in: {}\n", WEFT_GPU_KIND);
    if (found.all.empty()) fmt::print("no device: {}\n", found.none_because);
    for (std::size_t i = 0; i < found.all.size(); ++i) {
      const CudaDevice& device = found.all[i];
      fmt::print("      {}: {}, compute capability {}.{}, {} multiprocessors, {:.0f} GiB\n", i,
                 device.name, device.major, device.minor, device.multiprocessors,
                 double(device.memory) / double(1 << 30));
    }
  } else {
    fmt::print("cuda  not compiled in; configure with -Dgpu=cuda or -Dgpu=emulated\n");
  }
}

// What multiplies the tiles of attention in bf16.
const char* pairs_of_bf16() {
  if (simd::has_amx && amx::permitted()) return "AMX";
  return simd::has_bf16_dot ? "AVX512-BF16" : "f32";
}

int run(int argc, char** argv) {
  Program app("Lists the devices that this build supports and those that are available.",
              "devices");
  if (const auto status = app.parse(argc, argv)) return *status;
  fmt::print("cpu   {}, {} threads; products by {}; attention in bf16 by {}\n",
             hwy::TargetName(HWY_STATIC_TARGET), threads(), matmul_library(), pairs_of_bf16());
  print_cuda();
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::run_main("devices", weft::run, argc, argv); }
