// CPU kernels of shared-QK attention; the equations are in shared_full.h.
#include "ops/attention/shared_full/shared_full.h"

#include <cmath>

#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 rows_at_once = 256;

// Calls f(b, i, h) for every row, in parallel over positions.
template <class T, class F>
void each_row(const View<T, 4>& x, const F& f) {
  const i64 N = x.size(1);
  parallel_ranges(x.size(0) * N, rows_at_once, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      for (i64 h = 0; h < x.size(2); ++h) f(row / N, row % N, h);
    }
  });
}

template <class T>
T row_length(const View<const T, 4>& q, i64 b, i64 i, i64 h) {
  T squares = 0;
  for (i64 e = 0; e < q.size(3); ++e) squares += q(b, i, h, e) * q(b, i, h, e);
  return std::sqrt(squares);
}

}  // namespace

template <class Device, class T>
void SharedFullKernels<Device, T>::normalize_rows(const Device&, View<const T, 4> q, View<T, 4> k) {
  each_row(q, [&](i64 b, i64 i, i64 h) {
    const T n = row_length(q, b, i, h);
    const T factor = n == 0 ? T(0) : 1 / n;
    for (i64 e = 0; e < q.size(3); ++e) k(b, i, h, e) = factor * q(b, i, h, e);
  });
}

template <class Device, class T>
void SharedFullKernels<Device, T>::keys_backward(const Device&, bool normalized, View<const T, 4> q,
                                                 View<const T, 4> dk, View<T, 4> dq) {
  each_row(q, [&](i64 b, i64 i, i64 h) {
    if (!normalized) {
      for (i64 e = 0; e < q.size(3); ++e) dq(b, i, h, e) += dk(b, i, h, e);
      return;
    }
    // A key hidden by padding has no gradient, and its memory may hold anything.
    bool any = false;
    for (i64 e = 0; e < q.size(3); ++e) any = any || dk(b, i, h, e) != 0;
    const T n = any ? row_length(q, b, i, h) : T(0);
    if (n == 0) return;
    T along = 0;  // k · dk
    for (i64 e = 0; e < q.size(3); ++e) along += q(b, i, h, e) / n * dk(b, i, h, e);
    for (i64 e = 0; e < q.size(3); ++e) {
      dq(b, i, h, e) += (dk(b, i, h, e) - q(b, i, h, e) / n * along) / n;
    }
  });
}

template struct SharedFullKernels<Cpu, float>;
template struct SharedFullKernels<Cpu, double>;

}  // namespace weft
