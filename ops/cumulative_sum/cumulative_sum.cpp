#include "ops/cumulative_sum/cumulative_sum.h"

#include <algorithm>

#include "ops/cumulative_sum/kernels.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 15;  // elements that one piece of parallel work adds
constexpr i64 strip = 256;      // columns that are summed side by side

}  // namespace

template <class T>
void cumulative_sum(const Cpu&, View<const T, 3> x, View<T, 3> y) {
  const i64 n = x.size(1), inner = x.size(2), strips = (inner + strip - 1) / strip;
  const i64 together = std::max<i64>(1, grain / (n * std::min(inner, strip)));
  parallel_ranges(x.size(0) * strips, together, [&](i64 begin, i64 end) {
    for (i64 piece = begin; piece < end; ++piece) {
      const i64 o = piece / strips, first = piece % strips * strip;
      const i64 width = std::min(strip, inner - first);
      double sums[strip] = {};
      for (i64 i = 0; i < n; ++i) {
        for (i64 l = 0; l < width; ++l) {
          sums[l] += double(x(o, i, first + l));
          y(o, i, first + l) = static_cast<T>(sums[l]);
        }
      }
    }
  });
}

namespace {

// From the last position to the first.
template <class T>
View<T, 3> backwards(View<T, 3> x) {
  x.data += (x.size(1) - 1) * x.stride(1);
  x.strides[1] = -x.strides[1];
  return x;
}

Tensor summed(const Tensor& x, int axis, bool reverse) {
  const Tensor y = Tensor::empty_like(x);
  if (x.count() == 0) return y;
  const Shape three = around_axis(x.shape(), axis);
  const Tensor from = x.reshaped(three), to = y.reshape(three);
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    const View<const T, 3> terms = from.view<const T, 3>();
    const View<T, 3> sums = to.view<T, 3>();
    cumulative_sum<T>(device, reverse ? backwards(terms) : terms, reverse ? backwards(sums) : sums);
  });
  return y;
}

}  // namespace

Tensor CumulativeSum::forward(Saved&, const Tensor& x) const {
  require_real(name, x);
  return summed(x, axis, reverse);
}

Tensor CumulativeSum::backward(const Saved&, const Tensor& dy) const {
  return summed(dy, axis, !reverse);
}

Variable cumulative_sum(const Variable& x, int axis, bool reverse) {
  return apply(CumulativeSum{wrapped_axis(CumulativeSum::name, x.shape(), axis), reverse}, x);
}

}  // namespace weft
