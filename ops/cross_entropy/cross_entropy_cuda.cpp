#include "ops/cross_entropy/kernels.h"
#include "ops/reduce/kernels.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {

template <class T>
void mean_of_nats(const Cuda& device, std::int64_t rows, const double* nats, T* loss) {
  const SumSizes sizes{1, rows, 1};
  const std::int64_t pieces = sum_pieces(sizes);
  const Tensor partial = Tensor::empty({pieces}, DType::f64, device);
  sum_by_pieces(device, sizes, pieces, nats, partial.data<double>());
  mean_of_pieces(device, rows, pieces, partial.data<double>(), loss);
}

template void mean_of_nats(const Cuda&, std::int64_t, const double*, float*);
template void mean_of_nats(const Cuda&, std::int64_t, const double*, double*);

}  // namespace weft
