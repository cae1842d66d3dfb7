// The kernels of dropout.h: y = x ⊙ m over `count` elements in rows of mask.columns.
#pragma once

#include "ops/dropout/mask.h"
#include "runtime/device.h"

namespace weft {

template <class T>
void drop(const Cpu&, const DropoutMask& mask, std::int64_t count, const T* x, T* y);
template <class T>
void drop(const Cuda&, const DropoutMask& mask, std::int64_t count, const T* x, T* y);

}  // namespace weft
