#include <algorithm>

#include "ops/softmax/kernels.h"
#include "ops/softmax/rows.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 14;  // elements that one task computes

// Calls f(row) for every row of V elements.
template <class F>
void each_row(i64 rows, i64 V, const F& f) {
  const i64 together = std::max<i64>(1, grain / std::max<i64>(1, V));
  parallel_ranges(rows, together, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) f(row);
  });
}

}  // namespace

template <class Device, class T>
void SoftmaxKernels<Device, T>::forward(const Device&, i64 rows, i64 V, const T* x, T* y) {
  each_row(rows, V, [=](i64 row) {
    T* const to = y + row * V;
    const double z = row_sum(x + row * V, V, to).z;
    const auto divided = [inverse = Pack<T>(z == 0 ? 0 : 1 / z)](Pack<T> e) { return e * inverse; };
    map<T>(V, to, divided, to);
  });
}

template <class Device, class T>
void SoftmaxKernels<Device, T>::backward(const Device&, i64 rows, i64 V, const T* y, const T* dy,
                                         T* dx) {
  each_row(rows, V, [=](i64 row) {
    const T *const ys = y + row * V, *const dys = dy + row * V;
    const Pack<T> inner(simd::dot(ys, dys, V));
    const auto gradient = [=](Pack<T> p, Pack<T> d) { return p * (d - inner); };
    map<T>(V, dx + row * V, gradient, ys, dys);
  });
}

template <class Device, class T>
void LogSumExpKernels<Device, T>::forward(const Device&, i64 rows, i64 V, const T* x, T* lse,
                                          T* sums) {
  each_row(rows, V, [=](i64 row) {
    const RowSum<T> sum = row_sum(x + row * V, V);
    lse[row] = static_cast<T>(sum.log_sum_exp());
    sums[row] = sum.shift, sums[rows + row] = static_cast<T>(sum.z == 0 ? 0 : 1 / sum.z);
  });
}

template <class Device, class T>
void LogSumExpKernels<Device, T>::backward(const Device&, i64 rows, i64 V, const T* x,
                                           const T* sums, const T* dlse, T* dx) {
  each_row(rows, V, [=](i64 row) {
    const Pack<T> shift(sums[row]), factor(dlse[row] * sums[rows + row]);
    const auto gradient = [=](Pack<T> v) { return factor * exp(v - shift); };
    map<T>(V, dx + row * V, gradient, x + row * V);
  });
}

template struct SoftmaxKernels<Cpu, float>;
template struct SoftmaxKernels<Cpu, double>;
template struct LogSumExpKernels<Cpu, float>;
template struct LogSumExpKernels<Cpu, double>;

}  // namespace weft
