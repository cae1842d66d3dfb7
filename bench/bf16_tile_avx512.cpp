#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "bench/bf16_tile.h"

namespace weft::bench {
namespace {

constexpr i64 side = bf16_tile_side;

// R rows of c: they and four vectors across stay in registers.
template <int R>
void bf16_rows(const bf16* a, const bf16* b, float* c) {
  __m512 sum[R][4];
  for (auto& row : sum) std::fill(std::begin(row), std::end(row), _mm512_setzero_ps());
  for (i64 k = 0; k < side; k += 2) {
    __m512bh y[4];
    for (int v = 0; v < 4; ++v) {
      y[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + k * side + v * 32));
    }
    for (int r = 0; r < R; ++r) {
      int pair;
      std::memcpy(&pair, a + r * side + k, sizeof pair);
      const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
      for (int v = 0; v < 4; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, y[v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < 4; ++v) _mm512_storeu_ps(c + r * side + v * 16, sum[r][v]);
  }
}

void multiply_tile(const bf16* a, const bf16* b, float* c) {
  constexpr int full = 6, last = side % full;
  for (i64 row = 0; row + full <= side; row += full) {
    bf16_rows<full>(a + row * side, b, c + row * side);
  }
  bf16_rows<last>(a + (side - last) * side, b, c + (side - last) * side);
}

}  // namespace

const Bf16Tile bf16_tile = multiply_tile;

}  // namespace weft::bench
