// Products of matrices that are in cache already: no packing, no dispatch, one thread.
//
//     C[i, j] (+)= Σ_k A[i, k] B[k, j],   i < rows, j < columns, k < depth
//
// A may have any strides (a transposed or an overlapping window is as good as any other); B and C
// have rows of neighbouring elements. With 32 registers a tile of 6 rows ×
// 4 vectors of C is kept while k runs: per step 4 loads of B and 6 broadcasts of A feed 24
// multiply-adds. On shapes that fit the
// second-level cache this reaches some nine tenths of the arithmetic peak, without the fixed cost
// of a library call; for larger ones runtime/matmul.h is the way.
#pragma once

#include <algorithm>
#include <type_traits>

#include "runtime/simd.h"

namespace weft {

template <class T>
struct Strided {  // A: any strides, in elements
  const T* data;
  std::int64_t row;
  std::int64_t column;
};

template <class T>
struct Rows {  // B and C: rows of neighbouring elements
  T* data;
  std::int64_t row;
};

namespace tile_detail {

// With 32 vector registers a tile of 24 fits beside its operands; with 16 (AVX2), one of 8.
inline constexpr bool wide_registers = HWY_MAX_BYTES >= 64;
inline constexpr int widest = wide_registers ? 4 : 2;

template <int R, int V, class D, class T = simd::hn::TFromD<D>>
HWY_INLINE void micro(D d, std::int64_t depth, Strided<T> a, Rows<const T> b, Rows<T> c, bool add) {
  namespace hn = simd::hn;
  using Vector = hn::Vec<D>;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  Vector sum[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      sum[r][v] = add ? hn::LoadU(d, c.data + r * c.row + v * n) : hn::Zero(d);
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector y[V];
    for (int v = 0; v < V; ++v) y[v] = hn::LoadU(d, b.data + k * b.row + v * n);
    for (int r = 0; r < R; ++r) {
      const Vector x = hn::Set(d, a.data[r * a.row + k * a.column]);
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(x, y[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) hn::StoreU(sum[r][v], d, c.data + r * c.row + v * n);
  }
}

// All rows of a strip of V vectors; the last rows, fewer than a full tile, by smaller tiles.
template <int V, class D, class T = simd::hn::TFromD<D>>
void strip(D d, std::int64_t rows, std::int64_t depth, Strided<T> a, Rows<const T> b, Rows<T> c,
           bool add) {
  constexpr int R = wide_registers ? 24 / std::max(V, 2) : 8 / V;
  std::int64_t i = 0;
  const auto run = [&]<int N>(std::integral_constant<int, N>) {
    micro<N, V>(d, depth, {a.data + i * a.row, a.row, a.column}, b, {c.data + i * c.row, c.row},
                add);
    i += N;
  };
  while (i + R <= rows) run(std::integral_constant<int, R>{});
  if constexpr (R > 8) {
    if (i + 8 <= rows) run(std::integral_constant<int, 8>{});
  }
  if constexpr (R > 4) {
    if (i + 4 <= rows) run(std::integral_constant<int, 4>{});
  }
  if (i + 2 <= rows) run(std::integral_constant<int, 2>{});
  if (i < rows) run(std::integral_constant<int, 1>{});
}

}  // namespace tile_detail

// See the head of this file; `add` adds to C. Any number of columns: those past the last whole
// vector go by narrower vectors, down to one lane.
template <class T>
void tile_product(std::int64_t rows, std::int64_t columns, std::int64_t depth, Strided<T> a,
                  Rows<const T> b, Rows<T> c, bool add) {
  namespace hn = simd::hn;
  using tile_detail::strip;
  constexpr std::int64_t n = simd::lanes<T>;
  std::int64_t j = 0;
  const auto at = [&](auto p) { return decltype(p){p.data + j, p.row}; };
  const simd::Tag<T> wide;
  const auto sweep = [&]<int V>(std::integral_constant<int, V>) {
    for (; j + V * n <= columns; j += V * n) strip<V>(wide, rows, depth, a, at(b), at(c), add);
  };
  sweep(std::integral_constant<int, tile_detail::widest>{});
  sweep(std::integral_constant<int, 2>{});
  sweep(std::integral_constant<int, 1>{});
  const auto narrow = [&](auto d) {
    const auto width = static_cast<std::int64_t>(hn::Lanes(d));
    if (width < n && j + width <= columns) {
      strip<1>(d, rows, depth, a, at(b), at(c), add);
      j += width;
    }
  };
  narrow(hn::CappedTag<T, 8>{});
  narrow(hn::CappedTag<T, 4>{});
  narrow(hn::CappedTag<T, 2>{});
  while (j < columns) strip<1>(hn::CappedTag<T, 1>{}, rows, depth, a, at(b), at(c), add), ++j;
}

}  // namespace weft
