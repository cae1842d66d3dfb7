#include "ops/embedding/kernels.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {

template <class T>
void scatter_rows(const Cuda& cuda, std::int64_t count, std::int64_t V, std::int64_t d, const T* dy,
                  const std::int64_t* ids, T* dtable) {
  const Device device = cuda;
  IdSort sort{count, V, ids, nullptr, nullptr, nullptr, nullptr};
  const std::int64_t tiles = (count + id_tile - 1) / id_tile;
  const Tensor counts = Tensor::zeros({sort.chunks(), V + 1}, DType::i32, device);
  const Tensor starts = Tensor::empty(counts.shape(), DType::i64, device);
  const Tensor first = Tensor::empty({V + 2}, DType::i64, device);
  const Tensor sorted = Tensor::empty({count}, DType::i64, device);
  const Tensor ends = Tensor::empty({2, tiles, d}, DType::f64, device);
  sort.counts = counts.data<std::int32_t>();
  sort.starts = starts.data<std::int64_t>();
  sort.first = first.data<std::int64_t>();
  sort.sorted = sorted.data<std::int64_t>();
  sort_ids(cuda, sort);
  double* const heads = ends.data<double>();
  sum_sorted_rows(cuda, sort, d, dy, heads, heads + tiles * d, dtable);
}

template void scatter_rows(const Cuda&, std::int64_t, std::int64_t, std::int64_t, const float*,
                           const std::int64_t*, float*);
template void scatter_rows(const Cuda&, std::int64_t, std::int64_t, std::int64_t, const double*,
                           const std::int64_t*, double*);

}  // namespace weft
