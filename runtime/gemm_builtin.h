// A blocked product for builds without a matrix library: blocks of B are packed to stay in the L2
// cache, and runtime/tile.h computes on them.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/tile.h"

namespace weft {

template <class T>
void gemm_builtin(bool transpose_a, bool transpose_b, i64 m, i64 n, i64 k, const T* a, i64 lda,
                  const T* b, i64 ldb, T beta, T* c, i64 ldc) {
  constexpr i64 block = 192;
  std::vector<T> packed(static_cast<std::size_t>(block * block));
  for (i64 i = 0; i < m; ++i) {
    for (i64 j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? T(0) : beta * c[i * ldc + j];
  }
  const Strided<T> left{a, transpose_a ? 1 : lda, transpose_a ? lda : 1};
  for (i64 j = 0; j < n; j += block) {
    const i64 columns = std::min(block, n - j);
    for (i64 l = 0; l < k; l += block) {
      const i64 depth = std::min(block, k - l);
      for (i64 x = 0; x < depth; ++x) {
        for (i64 y = 0; y < columns; ++y) {
          const i64 row = l + x, column = j + y;
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
