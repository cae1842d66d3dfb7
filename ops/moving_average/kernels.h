// The kernels of moving_average.h.
#pragma once

#include "ops/attention/length.h"
#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

// The coefficients of a call. `lengths` holds one number for each item, or is null.
template <class T>
struct MovingAverages {
  View<const T, 3> decay, weight;  // q and c, [D, d, n]
  const i64* lengths = nullptr;
  i64 truncation = 0;  // larger lags do not count; 0: all count
  // Decoding: the states [B, d, n] before the first position, which are overwritten by those after
  // the last; and the number of rows before the first one in memory.
  View<T, 3> state = {};
  i64 earlier = 0;

  constexpr i64 directions() const { return decay.size(0); }
  constexpr i64 channels() const { return decay.size(1); }
  constexpr i64 states() const { return decay.size(2); }
  constexpr bool truncated(i64 length) const {
    return 0 < truncation && truncation < earlier + length;
  }
};

// The rows of one item in the order of a scan, which goes backwards if `reversed`.
template <class T>
struct ScannedRows {
  T* first;
  i64 step;

  constexpr ScannedRows(const View<T, 3>& x, i64 b, i64 length, bool reversed)
      : first(x.data + b * x.stride(0) + (reversed && length > 0 ? length - 1 : 0) * x.stride(1)),
        step(reversed ? -x.stride(1) : x.stride(1)) {}
  constexpr T* row(i64 i) const { return first + i * step; }
};

// x, y and their gradients are [B, N, d]; the channels of a row are contiguous.
template <class Device, class T>
struct MovingAverageKernels {
  // Writes all of y.
  static void forward(const Device&, const MovingAverages<T>&, View<const T, 3> x, View<T, 3> y);
  // Writes all of dx.
  static void backward(const Device&, const MovingAverages<T>&, View<const T, 3> dy, View<T, 3> dx);
  // The gradients of decay and weight in partial sums, [parts(B, N), D, d, n] each.
  static i64 parts(i64 B, i64 N);
  static void sums(const Device&, const MovingAverages<T>&, View<const T, 3> x, View<const T, 3> dy,
                   View<T, 4> ddecay, View<T, 4> dweight);
};

}  // namespace weft
