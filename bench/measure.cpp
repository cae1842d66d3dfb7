#include "bench/measure.h"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <vector>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "apps/command_line/commit.h"
#include "apps/command_line/output.h"
#include "bench/stamp.h"
#include "runtime/cuda/device.h"
#include "runtime/matmul.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace weft::bench {
namespace {

// The processor's own name, "AMD EPYC 9655".
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string today() {  // of UTC
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[sizeof "2026-11-23"];
  std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

// OpenBLAS reads its variables when it is loaded: the program restarts itself without them.
void drop_library_pins(char** argv) {
  constexpr const char* pins[] = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"};
  bool pinned = false;
  for (const char* const pin : pins) {
    pinned = pinned || std::getenv(pin) != nullptr;
    unsetenv(pin);
  }
  if (pinned) execv("/proc/self/exe", argv);
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

Quantiles measure(const std::function<void()>& f, int warm_up, int runs, double seconds,
                  const Clock& clock) {
  for (int i = 0; i < warm_up; ++i) f();
  std::vector<double> times;
  double total = 0;
  while (static_cast<int>(times.size()) < runs || total < seconds) {
    const double begin = clock();
    f();
    times.push_back(clock() - begin);
    total += times.back();
  }
  return quantiles(std::move(times));
}

Row machine(Device device) {
  Row json = {{"weft", WEFT_VERSION},
              {"commit", commit},
              {"date", today()},
              {"library", library_hash},
              {"tests", tests_of_this_library()},
              {"isa", hwy::TargetName(HWY_STATIC_TARGET)},
              {"matmul", matmul_library()},
              {"threads", threads()},
              {"device", "cpu"},
              {"processor", processor()}};
  if (device != Device{}) {
    json["device"] = cuda_devices().all.at(static_cast<std::size_t>(device.index)).name;
  }
  return json;
}

int run_bench(const char* name, int (*f)(int, char**), int argc, char** argv) {
  drop_library_pins(argv);
  return run_main(name, f, argc, argv);
}

}  // namespace weft::bench
