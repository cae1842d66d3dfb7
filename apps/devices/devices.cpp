// devices: lists the devices that this build supports and those that are available.
#include <fmt/core.h>

#include "apps/command_line/computed_by.h"
#include "apps/command_line/options.h"
#include "apps/command_line/output.h"
#include "runtime/cuda/device.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

void print_cuda() {
  if constexpr (has_cuda) {
    const CudaDevices& found = cuda_devices();
    fmt::print("cuda  compiled in: {}\n", gpu_of_build());
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

int run(int argc, char** argv) {
  Program app("Lists the devices that this build supports and those that are available.",
              "devices");
  if (const auto status = app.parse(argc, argv)) return *status;
  const auto [instructions, libraries] = computed_by();
  fmt::print("cpu   {}, {} threads; {}\n", instructions, threads(), libraries);
  print_cuda();
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::run_main("devices", weft::run, argc, argv); }
