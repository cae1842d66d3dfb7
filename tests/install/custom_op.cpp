// A program outside the tree: an op of its own, with a kernel for the CPU, found by dispatch().
#include <cstdio>

#include "autograd/apply.h"
#include "autograd/tape.h"
#include "ops/reduce/reduce.h"
#include "runtime/cuda/device.h"
#include "runtime/dispatch.h"

using namespace weft;

template <class T>
void cube(const Cpu&, View<const T, 1> x, View<T, 1> y) {
  for (std::int64_t i = 0; i < x.size(0); ++i) y(i) = x(i) * x(i) * x(i);
}
template <class T>
void cube_gradient(const Cpu&, View<const T, 1> x, View<const T, 1> dy, View<T, 1> dx) {
  for (std::int64_t i = 0; i < x.size(0); ++i) dx(i) = 3 * x(i) * x(i) * dy(i);
}

struct Cube {
  static constexpr const char* name = "cube";
  struct Saved {
    Tensor x;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.x = x;
    const Tensor y = Tensor::empty_like(x);
    dispatch(x, [&](auto device, auto type) {
      using T = decltype(type);
      cube<T>(device, x.view<const T, 1>(), y.view<T, 1>());
    });
    return y;
  }
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    const Tensor dx = Tensor::empty_like(dy);
    dispatch(dy, [&](auto device, auto type) {
      using T = decltype(type);
      cube_gradient<T>(device, saved.x.view<const T, 1>(), dy.view<const T, 1>(), dx.view<T, 1>());
    });
    return dx;
  }
};

int main() {
  const Variable x = Variable::leaf(Tensor::from(std::vector<double>{1, 2, -3}, {3}));
  Tape tape;
  tape.backward(sum(apply(Cube{}, x)));
  for (const double dx : x.gradient().to_vector<double>()) std::printf("%g ", dx);
  if constexpr (has_cuda) {
    std::printf("cuda");
    if (!cuda_devices().all.empty()) {
      const Device device{DeviceType::cuda};
      try {
        apply(Cube{}, Variable(x.value().to(device)));
      } catch (const Error& error) {
        std::printf(": %s", error.what());
      }
    }
  }
  std::printf("\n");
}
