// The kernels of directed.h, which has their equations.
#pragma once

#include "ops/blocks/kernels.h"

namespace weft {

template <class T>
struct Directed {
  View<const T, 3> scores, h;  // [p | g], packed, and h
  Blocks blocks;
  bool later = false;

  constexpr i64 B() const { return h.size(0); }
  constexpr i64 N() const { return h.size(1); }
  constexpr i64 C() const { return h.size(2); }
};

template <class Device, class T>
struct DirectedKernels {
  // Writes all of s and σ; both are 0 beyond the lengths and where nothing is seen.
  static void forward(const Device&, const Directed<T>&, View<T, 3> s, View<T, 3> sums);
  // Writes all of both gradients; dout and s are packed.
  static void backward(const Device&, const Directed<T>&, View<const T, 3> s, View<const T, 3> sums,
                       View<const T, 3> ds, View<T, 3> dscores, View<T, 3> dh);
};

}  // namespace weft
