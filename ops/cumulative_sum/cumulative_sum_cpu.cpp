#include <algorithm>

#include "ops/cumulative_sum/kernels.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 15;  // elements that one task adds
constexpr i64 strip = 256;      // columns that are summed together

}  // namespace

template <class Device, class T>
void CumulativeSumKernels<Device, T>::sum(const Device&, View<const T, 3> x, View<T, 3> y) {
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

template struct CumulativeSumKernels<Cpu, float>;
template struct CumulativeSumKernels<Cpu, double>;

}  // namespace weft
