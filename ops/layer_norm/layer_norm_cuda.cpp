#include "ops/layer_norm/kernels.h"
#include "ops/reduce/kernels.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {

template <class T>
void layer_norm_backward(const Cuda& device, const LayerNormRows<T>& p, const T* normalised,
                         const T* inverse_deviation, const T* dy, T* dx, T* dbranch, T* sums) {
  layer_norm_row_gradients(device, p, normalised, inverse_deviation, dy, dx, dbranch);
  const std::int64_t pieces = sum_pieces({1, p.rows, p.d});
  if (pieces == 1) return layer_norm_column_sums(device, p, 1, normalised, dy, sums);
  const Tensor partial = Tensor::empty({2, pieces, p.d}, DType::f64, device);
  layer_norm_column_sums(device, p, pieces, normalised, dy, partial.data<double>());
  sum_by_pieces<double, T>(device, {2, pieces, p.d}, 1, partial.data<double>(), sums);
}

template void layer_norm_backward(const Cuda&, const LayerNormRows<float>&, const float*,
                                  const float*, const float*, float*, float*, float*);
template void layer_norm_backward(const Cuda&, const LayerNormRows<double>&, const double*,
                                  const double*, const double*, double*, double*, double*);

}  // namespace weft
