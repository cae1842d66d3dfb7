// A blocked product for builds without a matrix library: blocks of B are packed so that they stay
// in the second-level cache, and runtime/tile.h does the arithmetic.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/tile.h"

namespace weft {

template <class T>
void gemm_builtin(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                  const T* a, std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c,
                  std::int64_t ldc) {
  constexpr std::int64_t block = 192;
  std::vector<T> packed(static_cast<std::size_t>(block * block));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? T(0) : beta * c[i * ldc + j];
  }
  const Strided<T> left{a, transpose_a ? 1 : lda, transpose_a ? lda : 1};
  for (std::int64_t j = 0; j < n; j += block) {
    const std::int64_t columns = std::min(block, n - j);
    for (std::int64_t l = 0; l < k; l += block) {
      const std::int64_t depth = std::min(block, k - l);
      for (std::int64_t x = 0; x < depth; ++x) {
        for (std::int64_t y = 0; y < columns; ++y) {
          const std::int64_t row = l + x, column = j + y;
          packed[static_cast<std::size_t>(x * columns + y)] =
              b[transpose_b ? column * ldb + row : row * ldb + column];
        }
      }
      tile_product<T>(m, columns, depth, {left.data + l * left.column, left.row, left.column},
                      {packed.data(), columns}, {c + j, ldc}, true);
    }
  }
}

}  // namespace weft
