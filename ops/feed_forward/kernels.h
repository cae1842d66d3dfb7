// The kernels of feed_forward.h between its products, on CUDA devices. Phi is one of
// ops/pointwise/functions.h.
#pragma once

#include <cstdint>

#include "runtime/device.h"

namespace weft {

// z ← z + bias and f = φ(z), over rows of h.
template <class Phi, class T>
void bias_and_activation(const Cuda&, std::int64_t rows, std::int64_t h, const T* bias, T* z, T* f);

// f = φ(z) and df ← df φ'(z), over `count` elements.
template <class Phi, class T>
void activation_gradient(const Cuda&, std::int64_t count, const T* z, T* f, T* df);

}  // namespace weft
