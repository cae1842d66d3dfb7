// The kernels of dropout.h: y = x ⊙ m over `count` elements in rows of mask.columns.
#pragma once

#include "ops/dropout/mask.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace weft {

template <class Device, class S>
struct DropoutKernels {
  static void apply(const Device&, const DropoutMask& mask, i64 count, const S* x, S* y);
};

}  // namespace weft
