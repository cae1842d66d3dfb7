// CUDA kernels of shared-QK attention; the equations are in shared_full.h. A warp owns a row of E
// elements, which it reads twice, from memory and from cache; 8 to 16 bytes an element in f32 with
// some 6 operations: bound by memory bandwidth. Unmeasured.
#include <cmath>

#include "ops/attention/shared_full/shared_full.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

// Rows count over b, i and h, so that memory accesses are contiguous.
template <class T>
__device__ i64 row_offset(const View<T, 4>& x, i64 row) {
  const i64 H = x.size(2), N = x.size(1);
  return row / H / N * x.stride(0) + row / H % N * x.stride(1) + row % H * x.stride(2);
}

template <class Team, class T>
__device__ T row_length(const Team& team, const T* q, i64 step, i64 E) {
  T squares = 0;
  for (i64 e = team.rank(); e < E; e += Team::threads) {
    squares += q[e * step] * q[e * step];
  }
  return std::sqrt(team.sum(squares));
}

template <class T>
struct NormalizedRow {
  View<const T, 4> q;
  View<T, 4> k;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const T* const from = q.data + row_offset(q, row);
    T* const to = k.data + row_offset(k, row);
    const T n = row_length(team, from, q.stride(3), q.size(3));
    const T factor = n == 0 ? T(0) : 1 / n;
    for (i64 e = team.rank(); e < q.size(3); e += Team::threads) {
      to[e * k.stride(3)] = factor * from[e * q.stride(3)];
    }
  }
};

template <class T>
struct SharedKeyRow {
  bool normalized;
  View<const T, 4> q, dk;
  View<T, 4> dq;

  template <class Team>
  __device__ void operator()(const Team& team, i64 row) const {
    const T* const x = q.data + row_offset(q, row);
    const T* const given = dk.data + row_offset(dk, row);
    T* const to = dq.data + row_offset(dq, row);
    if (!normalized) {
      for (i64 e = team.rank(); e < q.size(3); e += Team::threads) {
        to[e * dq.stride(3)] += given[e * dk.stride(3)];
      }
      return;
    }
    // A key hidden by padding has no gradient, and its memory may hold anything.
    T any = 0;
    for (i64 e = team.rank(); e < q.size(3); e += Team::threads) {
      if (given[e * dk.stride(3)] != 0) any = 1;
    }
    if (team.max(any) == 0) return;
    const T n = row_length(team, x, q.stride(3), q.size(3));
    if (n == 0) return;
    T along = 0;  // k · dk
    for (i64 e = team.rank(); e < q.size(3); e += Team::threads) {
      along += x[e * q.stride(3)] / n * given[e * dk.stride(3)];
    }
    along = team.sum(along);
    for (i64 e = team.rank(); e < q.size(3); e += Team::threads) {
      to[e * dq.stride(3)] += (given[e * dk.stride(3)] - x[e * q.stride(3)] / n * along) / n;
    }
  }
};

template <class T>
i64 rows_of(const View<T, 4>& x) {
  return x.size(0) * x.size(1) * x.size(2);
}

}  // namespace

template <class Device, class T>
void SharedFullKernels<Device, T>::normalize_rows(const Device& device, View<const T, 4> q,
                                                  View<T, 4> k) {
  for_rows("shared-full", device, rows_of(q), q.size(3), NormalizedRow<T>{q, k});
}

template <class Device, class T>
void SharedFullKernels<Device, T>::keys_backward(const Device& device, bool normalized,
                                                 View<const T, 4> q, View<const T, 4> dk,
                                                 View<T, 4> dq) {
  for_rows("shared-full", device, rows_of(q), q.size(3), SharedKeyRow<T>{normalized, q, dk, dq});
}

template struct SharedFullKernels<Cuda, float>;
template struct SharedFullKernels<Cuda, double>;

}  // namespace weft
