#include "bench/bf16_tile.h"

namespace weft::bench {

const Bf16Tile bf16_tile = nullptr;

}  // namespace weft::bench
