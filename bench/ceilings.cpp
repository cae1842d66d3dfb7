#include "bench/ceilings.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "autograd/gradcheck.h"
#include "bench/exp_kernel.h"
#include "bench/measure.h"
#include "runtime/dispatch.h"
#include "runtime/matmul.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"

namespace weft::bench {

double fastest(const std::function<void()>& f, Device device, const Effort& effort) {
  if (effort.runs > 1) f();
  double best = INFINITY, total = 0;
  for (int run = 0; run < effort.runs || total < effort.seconds; ++run) {
    wait_for(device);
    const double begin = steady_seconds();
    f();
    wait_for(device);
    const double time = steady_seconds() - begin;
    best = std::min(best, time), total += time;
  }
  return best;
}

double gemm_rate(Device device, const Effort& effort, DType type) {
  const i64 n = device == Device{} ? 2048 : 8192;
  const Tensor a = random_uniform({n, n}, DType::f32, 1, -1, 1).to(type).to(device);
  const Tensor b = random_uniform({n, n}, DType::f32, 2, -1, 1).to(type).to(device);
  const Tensor c = Tensor::empty_like(a);
  const int all = threads();
  set_threads(1);
  const double time = fastest([&] { matmul_into(a, b, c); }, device, effort);
  set_threads(all);
  return 2.0 * double(n) * double(n) * double(n) / time;
}

double copy_rate(Device device, const Effort& effort) {
  constexpr i64 bytes = i64{128} << 20, grain = i64{4} << 20;
  const Tensor from = Tensor::zeros({bytes}, DType::u8, device);
  const Tensor to = Tensor::zeros({bytes}, DType::u8, device);
  const auto copy = [&] {
    if (device == Device{}) {
      const auto* const source = from.data<std::uint8_t>();
      auto* const target = to.data<std::uint8_t>();
      parallel_ranges(bytes, grain, [&](i64 begin, i64 end) {
        std::memcpy(target + begin, source + begin, static_cast<std::size_t>(end - begin));
      });
    } else {
      to.copy_from(from);
    }
  };
  return 2.0 * double(bytes) / fastest(copy, device, effort);
}

void repeat_exp(const Cpu&, float* values, i64 count, i64 rounds) {
  namespace hn = simd::hn;
  parallel_ranges(count, 4096, [&](i64 begin, i64 end) {
    for (i64 round = 0; round < rounds; ++round) {
      for (i64 i = begin; i < end; i += simd::lanes<float>) {
        const auto x = simd::load(values + i, end - i);
        simd::store<float>(simd::exp<float>(hn::Neg(x)), values + i, end - i);
      }
    }
  });
}

double exp_rate(Device device, const Effort& effort) {
  const i64 count = device == Device{} ? 4096 * threads() : 1 << 22, rounds = 1024;
  const Tensor values = random_uniform({count}, DType::f32, 1, -1, 1).to(device);
  const auto exponentials = [&] {
    dispatch_device(
        device, [&](const auto& where) { repeat_exp(where, values.data<float>(), count, rounds); });
  };
  return double(count) * double(rounds) / fastest(exponentials, device, effort);
}

Ceilings ceilings(Device device, const Effort& effort, DType products) {
  const double gemm = gemm_rate(device, effort, products) * (device == Device{} ? threads() : 1);
  return {gemm, copy_rate(device, effort), exp_rate(device, effort)};
}

}  // namespace weft::bench
