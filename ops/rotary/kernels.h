// The kernels of rotary.h.
#pragma once

#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

struct Rotation {
  i64 first;
  double log_base;
  double sign;  // −1 turns back
};

// x and y [B, N, H, E], features side by side: pair i of position n is turned by sign · (first + n)
// · base^(−2i/E).
template <class T>
void rotate_pairs(const Cpu&, const Rotation& rotation, View<const T, 4> x, View<T, 4> y);
template <class T>
void rotate_pairs(const Cuda&, const Rotation& rotation, View<const T, 4> x, View<T, 4> y);

}  // namespace weft
