// The kernels of blocks.h.
#pragma once

#include <algorithm>

#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

// The blocks of `positions` positions; `lengths` [B] or null.
struct Blocks {
  i64 size, positions;
  const i64* lengths;

  constexpr i64 begin(i64 t) const { return t * size; }
  // The end of the positions of block t of item b that are within the length.
  constexpr i64 end(i64 b, i64 t) const {
    const i64 length = lengths == nullptr ? positions : std::min(lengths[b], positions);
    return std::clamp(length, begin(t), begin(t) + size);
  }
  constexpr i64 count(i64 b, i64 t) const { return end(b, t) - begin(t); }
};

// Whether a value replaces the largest so far; a NaN does, and is not replaced.
template <class T>
constexpr bool exceeds(T value, T largest) {
  return value > largest || (value != value && largest == largest);
}

template <class Device, class T>
struct BlockKernels {
  // y [B, n, H, E]: the sum over each block of x [B, N, H, E], divided by its count if `mean`.
  static void sum(const Device&, const Blocks&, bool mean, View<const T, 4> x, View<T, 4> y);
  // The largest, and the first position that has it; 0 and −1 for an empty block.
  static void maximum(const Device&, const Blocks&, View<const T, 4> x, View<T, 4> y,
                      View<i64, 4> positions);
  // For packed x and logits [B, N, H, E]: y [B, n, H, E]. Backward writes zeros beyond the lengths.
  static void weighted_mean(const Device&, const Blocks&, View<const T, 4> x,
                            View<const T, 4> logits, View<T, 4> y);
  static void weighted_mean_backward(const Device&, const Blocks&, View<const T, 4> x,
                                     View<const T, 4> logits, View<const T, 4> y,
                                     View<const T, 4> dy, View<T, 4> dx, View<T, 4> dlogits);
  // y_i = x_i + r_t within the length, with r_t divided by the count if `mean`, and x_i beyond it.
  // x counts as 0 if it has no data.
  static void spread(const Device&, const Blocks&, bool mean, View<const T, 4> x,
                     View<const T, 4> r, View<T, 4> y);
  // y_i = r_t where i is the position of block t, 0 elsewhere.
  static void place(const Device&, const Blocks&, View<const i64, 4> positions, View<const T, 4> r,
                    View<T, 4> y);
};

}  // namespace weft
