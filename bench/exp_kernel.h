// exp over and over: the kernel behind exp_rate().
//
// Each of `count` numbers x in `values` is replaced, `rounds` times, by x ← e^−x: it converges to
// 0.567, the solution of x = e^−x, and no compiler can skip a round.
#pragma once

#include <cstdint>

#include "runtime/device.h"
#include "runtime/types.h"

namespace weft::bench {

void repeat_exp(const Cpu&, float* values, i64 count, i64 rounds);
void repeat_exp(const Cuda&, float* values, i64 count, i64 rounds);

}  // namespace weft::bench
