#include "ops/cross_entropy/kernels.h"
#include "ops/softmax/rows.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr std::int64_t grain = 1 << 14;  // logits that one piece of parallel work reads

std::int64_t rows_together(std::int64_t V) {
  return std::max<std::int64_t>(1, grain / std::max<std::int64_t>(1, V));
}

}  // namespace

template <class Device, class T>
void CrossEntropyKernels<Device, T>::forward(const Device&, std::int64_t rows, std::int64_t V,
                                             const T* logits, const std::int64_t* targets, T* lse,
                                             double* nats) {
  parallel_ranges(rows, rows_together(V), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* const x = logits + row * V;
      const RowSum<T> sum = row_sum(x, V);
      if (lse != nullptr) lse[row] = static_cast<T>(sum.log_sum_exp());
      nats[row] = std::log(sum.z) + (double(sum.shift) - double(x[targets[row]]));
    }
  });
}

template <class Device, class T>
void CrossEntropyKernels<Device, T>::mean(const Device&, std::int64_t rows, const double* nats,
                                          T* loss) {
  *loss = static_cast<T>(simd::sum_in_f64(nats, rows) / static_cast<double>(rows));
}

template <class Device, class T>
void CrossEntropyKernels<Device, T>::backward(const Device&, std::int64_t rows, std::int64_t V,
                                              const T* logits, const std::int64_t* targets,
                                              const T* lse, const T* dloss, T* dlogits) {
  const double scale = static_cast<double>(*dloss) / static_cast<double>(rows);
  parallel_ranges(rows, rows_together(V), [=](std::int64_t begin, std::int64_t end) {
    const Pack<T> factor(scale);
    for (std::int64_t row = begin; row < end; ++row) {
      const Pack<T> shift(lse[row]);
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
