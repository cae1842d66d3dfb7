#include "ops/cross_entropy/kernels.h"
#include "ops/softmax/rows.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 14;  // logits that one task reads

i64 rows_together(i64 V) { return std::max<i64>(1, grain / std::max<i64>(1, V)); }

}  // namespace

template <class Device, class T>
void CrossEntropyKernels<Device, T>::forward(const Device&, i64 rows, i64 V, const T* logits,
                                             const i64* targets, T* sums, double* nats) {
  parallel_ranges(rows, rows_together(V), [=](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      const T* const x = logits + row * V;
      const RowSum<T> sum = row_sum(x, V);
      if (sums != nullptr) sums[row] = sum.shift, sums[rows + row] = static_cast<T>(1 / sum.z);
      nats[row] = std::log(sum.z) + (double(sum.shift) - double(x[targets[row]]));
    }
  });
}

template <class Device, class T>
void CrossEntropyKernels<Device, T>::mean(const Device&, i64 rows, const double* nats, T* loss) {
  *loss = static_cast<T>(simd::sum_in_f64(nats, rows) / static_cast<double>(rows));
}

template <class Device, class T>
void CrossEntropyKernels<Device, T>::backward(const Device&, i64 rows, i64 V, const T* logits,
                                              const i64* targets, const T* sums, const T* dloss,
                                              T* dlogits) {
  const double scale = static_cast<double>(*dloss) / static_cast<double>(rows);
  parallel_ranges(rows, rows_together(V), [=](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      const Pack<T> shift(sums[row]), factor(scale * double(sums[rows + row]));
      T* const dx = dlogits + row * V;
      const auto gradient = [=](Pack<T> x) { return factor * exp(x - shift); };
      map<T>(V, dx, gradient, logits + row * V);
      dx[targets[row]] -= static_cast<T>(scale);
    }
  });
}

template struct CrossEntropyKernels<Cpu, float>;
template struct CrossEntropyKernels<Cpu, double>;

}  // namespace weft
