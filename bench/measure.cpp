#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <unistd.h>

#include "autograd/gradcheck.h"
#include "runtime/cuda/device.h"
#include "runtime/dispatch.h"
#include "runtime/matmul.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace weft::bench {

void drop_library_pins(char** argv) {
  if (std::getenv("OPENBLAS_CORETYPE") == nullptr) return;
  unsetenv("OPENBLAS_CORETYPE");
  execv("/proc/self/exe", argv);
}

namespace {

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

double quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

}  // namespace

Times measure(const std::function<void()>& f, int warm_up, int runs, double seconds) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < warm_up; ++i) f();
  std::vector<double> times, used;
  double total = 0;
  while (static_cast<int>(times.size()) < runs || total < seconds) {
    const double processor = processor_seconds();
    const auto begin = Clock::now();
    f();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    used.push_back(processor_seconds() - processor);
    total += times.back();
  }
  return {quantile(times, 0.5), quantile(times, 0.1), quantile(times, 0.9), quantile(used, 0.5)};
}

void wait_for(Device device) {
  dispatch_device(device, []<class D>(const D& where) {
    if constexpr (!std::is_same_v<D, Cpu>) synchronize(where);
  });
}

double gemm_rate(Device device) {
  const std::int64_t n = device == Device{} ? 2048 : 8192;
  const Tensor a = random_uniform({n, n}, DType::f32, 1, -1, 1).to(device);
  const Tensor b = random_uniform({n, n}, DType::f32, 2, -1, 1).to(device);
  const Tensor c = Tensor::empty_like(a);
  const int all = threads();
  set_threads(1);
  const auto multiply = [&] {
    matmul_into(a, b, c);
    wait_for(device);
  };
  const Times times = measure(multiply, 2, 9, 0.5);
  set_threads(all);
  return 2.0 * double(n) * double(n) * double(n) / (device == Device{} ? times.cpu : times.median);
}

nlohmann::ordered_json machine(Device device) {
  nlohmann::ordered_json json = {{"weft", WEFT_VERSION},
                                 {"isa", hwy::TargetName(HWY_STATIC_TARGET)},
                                 {"matmul", matmul_library()},
                                 {"threads", threads()},
                                 {"device", "cpu"}};
  dispatch_device(device, [&]<class D>(const D& where) {
    if constexpr (!std::is_same_v<D, Cpu>) {
      json["device"] = cuda_devices().all.at(static_cast<std::size_t>(where.index)).name;
    }
  });
  return json;
}

int run_main(const char* name, int (*f)(int, char**), int argc, char** argv) {
  drop_library_pins(argv);
  try {
    return f(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 2;
  }
}

}  // namespace weft::bench
