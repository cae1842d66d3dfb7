#include <algorithm>

#include "ops/gather/kernels.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 15;  // elements that one task moves
constexpr i64 strip = 64;       // columns whose sums one task holds

}  // namespace

template <class Device, class T>
void GatherKernels<Device, T>::forward(const Device&, View<const T, 3> x, View<const i64, 3> index,
                                       View<T, 3> y) {
  const i64 m = y.size(1), inner = y.size(2);
  const i64 together = std::max<i64>(1, grain / inner);
  parallel_ranges(y.size(0) * m, together, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      const i64 o = row / m, i = row % m;
      for (i64 j = 0; j < inner; ++j) y(o, i, j) = x(o, index(o, i, j), j);
    }
  });
}

template <class Device, class T>
void GatherKernels<Device, T>::backward(const Device&, View<const T, 3> dy,
                                        View<const i64, 3> index, View<double, 3> dx) {
  const i64 m = dy.size(1), inner = dy.size(2), strips = (inner + strip - 1) / strip;
  const i64 together = std::max<i64>(1, grain / (m * std::min(inner, strip)));
  parallel_ranges(dy.size(0) * strips, together, [&](i64 begin, i64 end) {
    for (i64 piece = begin; piece < end; ++piece) {
      const i64 o = piece / strips, first = piece % strips * strip;
      const i64 last = std::min(first + strip, inner);
      for (i64 i = 0; i < m; ++i) {
        for (i64 j = first; j < last; ++j) dx(o, index(o, i, j), j) += double(dy(o, i, j));
      }
    }
  });
}

template struct GatherKernels<Cpu, float>;
template struct GatherKernels<Cpu, double>;

}  // namespace weft
