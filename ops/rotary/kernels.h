// The kernels of rotary.h.
#pragma once

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/view.h"

namespace weft {

struct Rotation {
  i64 first;
  double log_base;
  double sign;  // −1: the inverse rotation
};

template <class Device, class S>
struct RotaryKernels {
  // x and y [B, N, H, E], features contiguous: pair i of position n is rotated by sign · (first +
  // n) · base^(−2i/E).
  static void rotate(const Device&, const Rotation&, View<const S, 4> x, View<S, 4> y);
};

}  // namespace weft
