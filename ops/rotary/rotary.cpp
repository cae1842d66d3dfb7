#include "ops/rotary/rotary.h"

#include <cmath>

#include "ops/rotary/kernels.h"
#include "runtime/dispatch.h"

namespace weft {

namespace {

Tensor rotated(const Rotary& op, const Tensor& x, double sign) {
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.count() == 0) return y;
  const Tensor from = x.stride(3) == 1 ? x : x.packed();  // features must be contiguous
  const Rotation rotation{op.first, std::log(op.base), sign};
  dispatch_floating(x, [&](auto device, auto type) {
    using T = decltype(type);
    RotaryKernels<decltype(device), T>::rotate(device, rotation, from.view<T, 4>(), y.view<T, 4>());
  });
  return y;
}

}  // namespace

Tensor Rotary::forward(Saved&, const Tensor& x) const { return rotated(*this, x, 1); }

Tensor Rotary::backward(const Saved&, const Tensor& dy) const { return rotated(*this, dy, -1); }

Variable rotary(const Variable& x, i64 first, double base) {
  require_real(Rotary::name, x.value());
  require(x.value().rank() == 4 && x.size(3) % 2 == 0,
          "rotary: wanted [B, N, H, E] with an even E, got {}", x.shape());
  require(first >= 0, "rotary: positions begin at 0, got {}", first);
  require(base > 1 && std::isfinite(base), "rotary: the base is above 1, got {}", base);
  return apply(Rotary{first, base}, x);
}

}  // namespace weft
