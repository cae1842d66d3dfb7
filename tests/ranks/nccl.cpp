// Sums by NCCL on one rank, which is as many as a machine with one GPU has. The sum is the value.
#include "runtime/arithmetic.h"
#include "runtime/cuda/device_sum.h"
#include "runtime/cuda/graph.h"
#include "tests/check.h"
#include "tests/cuda_there.h"

using namespace weft;

namespace {

TEST_SUITE("ranks") {

TEST_CASE("nccl: on one rank, at once and captured, each sum comes behind the work before it") {
  if (!cuda_is_there() || !WEFT_NCCL) {
    MESSAGE("skipped: wants NCCL (-Dnccl=enabled) and a CUDA device");
    return;
  }
  const Cuda device{};
  DeviceSum& sum = *device_sum(device, ranks());
  const Tensor x = random_normal({1000}, DType::f32, 1).to(device);
  const Tensor y = random_normal({77}, DType::f64, 2).to(device);
  const Tensor x_sum = Tensor::zeros({1000}, DType::f32, device);
  const Tensor y_sum = Tensor::zeros({77}, DType::f64, device);
  const Tensor out = Tensor::zeros({77}, DType::f64, device);
  const auto step = [&] {
    add_into(x, x);
    sum.begin(x.dtype(), x.bytes(), x_sum.bytes(), x.count());
    add_into(y, y);
    sum.begin(y.dtype(), y.bytes(), y_sum.bytes(), y.count());
    sum.join();
    out.copy_from(y_sum);
  };
  CudaGraph graph(device);
  const auto check = [&] {
    ranks().wait_until([&] {
      sum.check();
      return idle(device);
    });
    CHECK(same_bits(x_sum, x));
    CHECK(same_bits(out, y));
  };
  for (int run = 0; run < 2; ++run) {
    graph.run(step);
    check();
  }
  graph.capture(step);
  for (int replay = 0; replay < 3; ++replay) {
    graph.replay();
    check();
  }
}

}  // TEST_SUITE("ranks")
}  // namespace
