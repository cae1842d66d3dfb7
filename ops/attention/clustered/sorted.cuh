// Data of mechanisms over clusters on CUDA devices besides their results.
#pragma once

#include "ops/attention/clustered/groups.cuh"
#include "runtime/cuda/workspace.h"

namespace weft {

// The first `length` (or all N) of each row of labels [B, H, N], sorted by label (stable), with
// begins [B, H, C + 1] in order [B, H, N].
struct LabelSort {
  const std::int32_t* labels;
  const i64* lengths;
  i64 B, H, N, clusters;
  std::int32_t* begins;
  std::int32_t* order;
};
void sort_labels(const Cuda&, const LabelSort&);

// Memory for [B, C, H, width] with the layout [B, H, C, width].
template <class T>
class PerCluster {
 public:
  PerCluster() = default;
  PerCluster(const Cuda& device, const SortedQueries& p, i64 width)
      : memory_(device, p.B * p.H * p.clusters * width),
        view_{memory_.data(),
              {p.B, p.clusters, p.H, width},
              {p.H * p.clusters * width, width, p.clusters * width, 1}} {}

  T* data() const { return memory_.data(); }
  const View<T, 4>& view() const { return view_; }

 private:
  Workspace<T> memory_;
  View<T, 4> view_;
};

// The queries of a problem with labels, sorted by cluster, and the memory for that.
struct Sorting {
  Workspace<std::int32_t> begins, order;
  SortedQueries queries;

  template <class Problem>
  Sorting(const Cuda& device, const Problem& p)
      : begins(device, p.B() * p.H() * (p.clusters + 1)),
        order(device, p.B() * p.H() * p.N()),
        queries{p.labels.data, begins.data(), order.data(), p.query_lengths,
                p.B(),         p.N(),         p.H(),        p.clusters} {
    sort_labels(device, {p.labels.data, p.query_lengths, p.B(), p.H(), p.N(), p.clusters,
                         begins.data(), order.data()});
  }
};

}  // namespace weft
