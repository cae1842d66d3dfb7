// Operations on a CUDA device, real or emulated.
#include <array>

#include "autograd/tape.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"
#include "tests/check.h"

namespace weft {
namespace {

constexpr Device cuda{DeviceType::cuda, 0};

TEST_SUITE("ops") {

TEST_CASE("device: an operation without a kernel says so") {
  if (!has_cuda) return;
  const Variable x(random_normal({3, 5}, DType::f32, 1).to(cuda));
  CHECK_ERROR(softmax(x), "cuda: this operation has no CUDA kernel yet");
}

TEST_CASE("device: views and their gradients stay on the device") {
  if (!has_cuda) return;
  const Tensor x = random_normal({3, 4, 5}, DType::f64, 1), y = random_normal({3, 2, 5}, DType::f64, 2);
  const Tensor cotangent = random_normal({5, 6, 3}, DType::f64, 3);
  const auto walk = [&](Device device) {
    const Variable a = Variable::leaf(x.to(device)), b = Variable::leaf(y.to(device));
    Tape tape;
    const Variable whole = concatenate(std::array{a, b}, 1);
    const Variable turned = transpose(whole, 0, 2);
    tape.backward(std::array{turned, turned}, std::array{cotangent.to(device), cotangent.to(device)});
    CHECK(a.gradient().device() == device);
    return std::array{turned.value().to(Device{}), a.gradient().to(Device{}),
                      b.gradient().to(Device{})};
  };
  const auto here = walk({}), there = walk(cuda);
  for (std::size_t i = 0; i < 3; ++i) CHECK(same_bits(there[i], here[i]));
}

}  // TEST_SUITE("ops")

}  // namespace
}  // namespace weft
