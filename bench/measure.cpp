#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include <unistd.h>

#include "autograd/gradcheck.h"
#include "runtime/matmul.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace weft::bench {

void drop_library_pins(char** argv) {
  if (std::getenv("OPENBLAS_CORETYPE") == nullptr) return;
  unsetenv("OPENBLAS_CORETYPE");
  execv("/proc/self/exe", argv);
}

Times measure(const std::function<void()>& f, int warm_up, int runs, double seconds) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < warm_up; ++i) f();
  std::vector<double> times;
  double total = 0;
  while (static_cast<int>(times.size()) < runs || total < seconds) {
    const auto begin = Clock::now();
    f();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

double gemm_rate() {
  constexpr std::int64_t n = 2048;
  const Tensor a = random_uniform({n, n}, DType::f32, 1, -1, 1);
  const Tensor b = random_uniform({n, n}, DType::f32, 2, -1, 1);
  const Tensor c = Tensor::empty({n, n}, DType::f32);
  const auto matrix = [](const Tensor& t) { return Matrix<float>{t.data<float>(), n, n, n, 1}; };
  const auto fixed = [&](const Tensor& t) {
    return Matrix<const float>{t.data<float>(), n, n, n, 1};
  };
  const Times times = measure([&] { matmul<float>(Cpu{}, fixed(a), fixed(b), matrix(c)); }, 2, 9, 0.5);
  return 2.0 * n * n * n / times.median;
}

nlohmann::ordered_json machine() {
  return {{"weft", WEFT_VERSION},
          {"isa", hwy::TargetName(HWY_STATIC_TARGET)},
          {"matmul", matmul_library()},
          {"threads", threads()}};
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
