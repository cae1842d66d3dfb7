// Scratch of mechanisms over clusters on CUDA devices: for their host code.
#pragma once

#include "ops/attention/clustered/groups.h"
#include "ops/attention/clustered/kernels.h"
#include "runtime/cuda/device.h"
#include "runtime/tensor.h"

namespace weft {

// A tensor [B, C, H, width] that lies as [B, H, C, width].
template <class T>
Tensor per_cluster(const Cuda& device, std::int64_t B, std::int64_t C, std::int64_t H,
                   std::int64_t width) {
  return Tensor::empty({B, H, C, width}, dtype_of<T>, device).transpose(1, 2);
}

// Of a problem with labels: its queries sorted by cluster, and the room that this takes.
struct Sorting {
  Tensor begins, order;
  SortedQueries queries;

  template <class Problem>
  Sorting(const Cuda& device, const Problem& p)
      : begins(Tensor::empty({p.B(), p.H(), p.clusters + 1}, DType::i32, device)),
        order(Tensor::empty({p.B(), p.H(), p.N()}, DType::i32, device)),
        queries{p.labels.data,
                begins.data<std::int32_t>(),
                order.data<std::int32_t>(),
                p.query_lengths,
                p.B(),
                p.N(),
                p.H(),
                p.clusters} {
    sort_labels(device, {p.labels.data, p.query_lengths, p.B(), p.H(), p.N(), p.clusters,
                         begins.data<std::int32_t>(), order.data<std::int32_t>()});
  }
};

}  // namespace weft
