#include "ops/reduce/kernels.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {

template <class T>
void sum_axis(const Cuda& device, const SumSizes& sizes, const T* x, T* s) {
  const std::int64_t pieces = sum_pieces(sizes);
  if (pieces == 1) return sum_by_pieces(device, sizes, 1, x, s);
  const SumSizes rest{sizes.outer, pieces, sizes.inner};
  const Tensor partial = Tensor::empty({rest.outer, rest.n, rest.inner}, DType::f64, device);
  sum_by_pieces(device, sizes, pieces, x, partial.data<double>());
  sum_by_pieces<double, T>(device, rest, 1, partial.data<double>(), s);
}

template void sum_axis(const Cuda&, const SumSizes&, const float*, float*);
template void sum_axis(const Cuda&, const SumSizes&, const double*, double*);

}  // namespace weft
