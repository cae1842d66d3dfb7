// Agglomerative attention on a CUDA device: its steps in order, and the room that they share.
#include "ops/attention/agglomerative/steps.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {
namespace {

Tensor chunk_rows(const Cuda& device, std::int64_t B, std::int64_t positions, std::int64_t width) {
  return Tensor::empty({B, agglomerative_chunks(positions), width}, DType::f64, device);
}

}  // namespace

template <class T>
void agglomerative_forward(const Cuda& device, const Agglomerative<T>& p, View<double, 3> sums,
                           View<T, 4> out) {
  const std::int64_t chunks = agglomerative_chunks(p.S());
  if (p.causal) {
    sum_references(device, p, sums.data);
    combine_chunks(device, ChunkSums::upwards, p.B(), chunks, p.width(), sums.data, sums.data);
  } else {
    const Tensor rows = chunk_rows(device, p.B(), p.S(), p.width());
    sum_references(device, p, rows.data<double>());
    combine_chunks(device, ChunkSums::total, p.B(), chunks, p.width(), rows.data<double>(),
                   sums.data);
  }
  write_outputs<T>(device, p, sums.data, out, nullptr);
}

template <class T>
void agglomerative_advance(const Cuda& device, const Agglomerative<T>& p, View<double, 2> sums,
                           View<T, 4> out) {
  write_outputs<T>(device, p, sums.data, out, sums.data);
}

template <class T>
void agglomerative_backward(const Cuda& device, const Agglomerative<T>& p,
                            View<const double, 3> sums, View<const T, 4> dout, View<T, 3> dzq,
                            View<T, 3> dzk, View<T, 4> dy) {
  const std::int64_t chunks = agglomerative_chunks(p.N());
  const Tensor rows = chunk_rows(device, p.B(), p.N(), p.width());
  double* totals = rows.data<double>();
  sweep_queries<T>(device, p, sums.data, dout, dzq, dzk, totals);
  Tensor all;
  if (p.causal) {
    combine_chunks(device, ChunkSums::downwards, p.B(), chunks, p.width(), totals, totals);
  } else {
    all = Tensor::empty({p.B(), p.width()}, DType::f64, device);
    combine_chunks(device, ChunkSums::total, p.B(), chunks, p.width(), totals, all.data<double>());
    totals = all.data<double>();
  }
  sweep_references<T>(device, p, sums.data, totals, dout, dzk, dy);
  finish_logits<T>(device, p, dzq, dzk);
}

#define WEFT_AGGLOMERATIVE(T)                                                                     \
  template void agglomerative_forward(const Cuda&, const Agglomerative<T>&, View<double, 3>,      \
                                      View<T, 4>);                                                \
  template void agglomerative_advance(const Cuda&, const Agglomerative<T>&, View<double, 2>,      \
                                      View<T, 4>);                                                \
  template void agglomerative_backward(const Cuda&, const Agglomerative<T>&,                      \
                                       View<const double, 3>, View<const T, 4>, View<T, 3>,       \
                                       View<T, 3>, View<T, 4>);
WEFT_AGGLOMERATIVE(float)
WEFT_AGGLOMERATIVE(double)

}  // namespace weft
