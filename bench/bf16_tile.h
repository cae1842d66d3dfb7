// One tile of attention's products in bf16, in registers.
#pragma once

#include "runtime/dtype.h"

namespace weft::bench {

inline constexpr i64 bf16_tile_side = 64;

// c [64, 64] = a b of depth 64, summed in f32: a [64, 64] with pairs along its rows, b [32, 64]
// pairs of rows, as the instruction wants them. Null where the build has no AVX512-BF16.
using Bf16Tile = void (*)(const bf16* a, const bf16* b, float* c);
extern const Bf16Tile bf16_tile;

}  // namespace weft::bench
