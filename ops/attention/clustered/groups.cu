// CUDA kernels between queries and clusters. They move each query's row once, with almost no
// operations: bound by memory bandwidth (estimated). A cluster is processed by a team of threads
// (runtime/cuda/loops.h), whose members are adjacent along a row; it visits the members of the
// cluster in ascending order and sums in f64.
//
// For each of B N H E elements (or M) in f32: gathering reads 4 bytes, an inner product 8;
// spreading writes 4, or reads and writes 8 if it adds.
#include "ops/attention/clustered/groups.cuh"
#include "ops/attention/length.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

constexpr const char* name = "clusters";

// One cluster of one head.
struct Cluster {
  i64 b, h, c, begin, end;
  const std::int32_t* order;

  __device__ Cluster(const SortedQueries& p, i64 row)
      : b(row / p.clusters / p.H), h(row / p.clusters % p.H), c(row % p.clusters) {
    const i64 head = row / p.clusters;
    begin = p.begins[head * (p.clusters + 1) + c];
    end = p.begins[head * (p.clusters + 1) + c + 1];
    order = p.order + head * p.N;
  }
};

template <class T>
struct Gather {
  SortedQueries p;
  bool mean;
  View<const T, 4> x;
  View<T, 4> y;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const Cluster cluster(p, row);
    const i64 size = cluster.end - cluster.begin;
    const double factor = mean && size > 0 ? 1.0 / static_cast<double>(size) : 1.0;
    for (i64 e = team.rank(); e < x.size(3); e += Team::threads) {
      double sum = 0;
#pragma unroll 4
      for (i64 i = cluster.begin; i < cluster.end; ++i) {
        sum += static_cast<double>(x(cluster.b, cluster.order[i], cluster.h, e));
      }
      y(cluster.b, cluster.c, cluster.h, e) = static_cast<T>(factor * sum);
    }
  }
};

template <class T>
struct Inner {
  SortedQueries p;
  View<const T, 4> x, y;
  T* inner;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const Cluster cluster(p, row);
    double sum = 0;
    for (i64 e = team.rank(); e < x.size(3); e += Team::threads) {
#pragma unroll 4
      for (i64 i = cluster.begin; i < cluster.end; ++i) {
        const i64 query = cluster.order[i];
        sum += static_cast<double>(x(cluster.b, query, cluster.h, e)) *
               static_cast<double>(y(cluster.b, query, cluster.h, e));
      }
    }
    sum = team.sum(sum);
    if (team.rank() == 0) inner[row] = static_cast<T>(sum);
  }
};

// Element i of x as [B, N, H, width].
template <class T>
struct Spread {
  SortedQueries p;
  bool share, add;
  View<const T, 4> y;
  View<T, 4> x;

  __device__ void operator()(i64 i) const {
    const i64 width = x.size(3), e = i % width, h = i / width % p.H;
    const i64 query = i / width / p.H % p.N, b = i / width / p.H / p.N, head = b * p.H + h;
    T value = 0;
    if (query < length_of(p.lengths, b, p.N)) {
      const i64 c = p.labels[head * p.N + query];
      value = y(b, c, h, e);
      if (share) {
        const std::int32_t* const begins = p.begins + head * (p.clusters + 1) + c;
        value /= static_cast<T>(begins[1] - begins[0]);
      }
    }
    T& to = x(b, query, h, e);
    to = add ? to + value : value;
  }
};

}  // namespace

template <class T>
void GroupKernels<T>::gather(const Cuda& device, const SortedQueries& p, bool mean,
                             View<const T, 4> x, View<T, 4> y) {
  for_rows(name, device, p.B * p.H * p.clusters, x.size(3), Gather<T>{p, mean, x, y});
}

template <class T>
void GroupKernels<T>::spread(const Cuda& device, const SortedQueries& p, bool share, bool add,
                             View<const T, 4> y, View<T, 4> x) {
  for_elements(name, device, p.B * p.N * p.H * x.size(3), Spread<T>{p, share, add, y, x});
}

template <class T>
void GroupKernels<T>::inner_products(const Cuda& device, const SortedQueries& p, View<const T, 4> x,
                                     View<const T, 4> y, T* inner) {
  for_rows(name, device, p.B * p.H * p.clusters, x.size(3), Inner<T>{p, x, y, inner});
}

template struct GroupKernels<float>;
template struct GroupKernels<double>;

}  // namespace weft
