// CUDA kernels of softmax and log-sum-exp; the equations are in softmax.h. A row is processed by a
// team of threads (runtime/cuda/loops.h), which reads it from memory once and from cache again.
//
// Softmax moves 8 bytes an element forward and 12 backward in f32, with about 10 operations: bound
// by memory bandwidth (estimated).
#include "ops/softmax/kernels.h"
#include "ops/softmax/row_sum.cuh"

namespace weft {
namespace {

template <class T>
struct SoftmaxRow {
  i64 V;
  const T* x;
  T* y;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const T* const from = x + row * V;
    const TeamRowSum<T> sum = row_sum(team, from, V);
    const T inverse = sum.z == 0 ? T(0) : 1 / sum.z;
    for (i64 j = team.rank(); j < V; j += Team::threads) {
      y[row * V + j] = std::exp(from[j] - sum.shift) * inverse;
    }
  }
};

template <class T>
struct SoftmaxBackwardRow {
  i64 V;
  const T* y;
  const T* dy;
  T* dx;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const T *const p = y + row * V, *const d = dy + row * V;
    T part = 0;
    for (i64 j = team.rank(); j < V; j += Team::threads) part += p[j] * d[j];
    const T inner = team.sum(part);
    for (i64 j = team.rank(); j < V; j += Team::threads) {
      dx[row * V + j] = p[j] * (d[j] - inner);
    }
  }
};

template <class T>
struct LogSumExpRow {
  i64 rows, V;
  const T* x;
  T *lse, *sums;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const TeamRowSum<T> sum = row_sum(team, x + row * V, V);
    if (team.rank() != 0) return;
    lse[row] = sum.log_sum_exp();
    sums[row] = sum.shift, sums[rows + row] = sum.z == 0 ? T(0) : T(1) / sum.z;
  }
};

template <class T>
struct LogSumExpBackward {
  i64 rows, V;
  const T* x;
  const T* sums;
  const T* dlse;
  T* dx;

  __device__ void operator()(i64 i) const {
    const i64 row = i / V;
    dx[i] = dlse[row] * sums[rows + row] * std::exp(x[i] - sums[row]);
  }
};

}  // namespace

template <class Device, class T>
void SoftmaxKernels<Device, T>::forward(const Device& device, i64 rows, i64 V,
                                        const T* x, T* y) {
  for_rows("softmax", device, rows, V, SoftmaxRow<T>{V, x, y});
}

template <class Device, class T>
void SoftmaxKernels<Device, T>::backward(const Device& device, i64 rows, i64 V,
                                         const T* y, const T* dy, T* dx) {
  for_rows("softmax", device, rows, V, SoftmaxBackwardRow<T>{V, y, dy, dx});
}

template <class Device, class T>
void LogSumExpKernels<Device, T>::forward(const Device& device, i64 rows, i64 V,
                                          const T* x, T* lse, T* sums) {
  for_rows("log_sum_exp", device, rows, V, LogSumExpRow<T>{rows, V, x, lse, sums});
}

template <class Device, class T>
void LogSumExpKernels<Device, T>::backward(const Device& device, i64 rows, i64 V,
                                           const T* x, const T* sums, const T* dlse, T* dx) {
  for_elements("log_sum_exp", device, rows * V, LogSumExpBackward<T>{rows, V, x, sums, dlse, dx});
}

template struct SoftmaxKernels<Cuda, float>;
template struct SoftmaxKernels<Cuda, double>;
template struct LogSumExpKernels<Cuda, float>;
template struct LogSumExpKernels<Cuda, double>;

}  // namespace weft
