#include "runtime/tile.h"

#include <algorithm>
#include <type_traits>

#include "runtime/amx.h"
#include "runtime/simd.h"

namespace weft {
namespace {

// With 32 vector registers a tile of 24 fits beside its operands; with 16 (AVX2), one of 12.
constexpr bool many_registers = HWY_MAX_BYTES >= 64;
constexpr int tile = many_registers ? 24 : 12;
constexpr int widest = many_registers ? 4 : 2;  // vectors of a tile's row
// A panel is the part of B that one strip reads; it takes half of the L1 cache. It is packed where
// enough rows read it that the copy costs a few per cent of the product; with AVX-512 packing does
// not pay.
constexpr i64 panel_bytes = 16 << 10;
constexpr i64 panel_rows = 64;

// Optimisation barrier: keeps gcc from holding each row address in a register of its own, which
// spills.
template <class T>
HWY_INLINE void hide(T*& pointer) {
  asm("" : "+r"(pointer));
}

// Vectors of A that are multiplied into sums in the lanes of D.
template <class A, class D>
using Operands = std::conditional_t<std::is_same_v<A, Bf16Pair>, simd::hn::RebindToSigned<D>, D>;

// sum + x y; of pairs, both products.
template <class A, class D, class X>
HWY_INLINE simd::hn::Vec<D> multiply_add(D d, X x, X y, simd::hn::Vec<D> sum) {
  namespace hn = simd::hn;
  if constexpr (!std::is_same_v<A, Bf16Pair>) {
    return hn::MulAdd(x, y, sum);
  } else if constexpr (simd::has_bf16_dot) {
    using V = hn::Vec<D>;
    if constexpr (sizeof(V) == 64) {
      return V{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(x.raw),
                                reinterpret_cast<__m512bh>(y.raw))};
    } else if constexpr (sizeof(V) == 32) {
      return V{_mm256_dpbf16_ps(sum.raw, reinterpret_cast<__m256bh>(x.raw),
                                reinterpret_cast<__m256bh>(y.raw))};
    } else {
      return V{_mm_dpbf16_ps(sum.raw, reinterpret_cast<__m128bh>(x.raw),
                             reinterpret_cast<__m128bh>(y.raw))};
    }
  } else {
    const hn::RebindToSigned<D> words;
    const auto upper = hn::Set(words, static_cast<std::int32_t>(0xffff0000u));
    const auto first = [&](X pair) { return hn::BitCast(d, hn::ShiftLeft<16>(pair)); };
    const auto second = [&](X pair) { return hn::BitCast(d, hn::And(pair, upper)); };
    return hn::MulAdd(second(x), second(y), hn::MulAdd(first(x), first(y), sum));
  }
}

template <int R, int V, class D, class A, class T = simd::hn::TFromD<D>>
HWY_INLINE void micro(D d, i64 depth, Strided<A> a, Rows<const A> b, Rows<T> c, bool add) {
  namespace hn = simd::hn;
  using Vector = hn::Vec<D>;
  const Operands<A, D> operands;
  const auto n = static_cast<i64>(hn::Lanes(d));
  Vector sum[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      sum[r][v] = hn::Zero(d);
    }
  }
  // Every third row has a base pointer: addressing modes add one and two strides to it.
  static_assert(R <= 12);
  const A *a0 = a.data, *a3 = a0 + 3 * a.row, *a6 = a3 + 3 * a.row, *a9 = a6 + 3 * a.row;
  for (i64 k = 0; k < depth; ++k) {
    hide(a0);
    if constexpr (R > 3) hide(a3);
    if constexpr (R > 6) hide(a6);
    if constexpr (R > 9) hide(a9);
    hn::Vec<decltype(operands)> y[V];
    for (int v = 0; v < V; ++v) y[v] = hn::LoadU(operands, b.data + k * b.row + v * n);
    for (int r = 0; r < R; ++r) {
      const A* const row = r < 3 ? a0 : r < 6 ? a3 : r < 9 ? a6 : a9;
      const auto x = hn::Set(operands, row[r % 3 * a.row]);
      for (int v = 0; v < V; ++v) sum[r][v] = multiply_add<A>(d, x, y[v], sum[r][v]);
    }
    a0 += a.column, a3 += a.column, a6 += a.column, a9 += a.column;
  }
  // C is added only here: a long product, computed some depths at a time, is a sum of partial sums.
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      T* const to = c.data + v * n;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum[r][v]) : sum[r][v], d, to);
    }
    c.data += c.row;
    hide(c.data);
  }
}

// All rows of a strip of V vectors. Tiles of four rows and fewer are slow: gcc reloads B for every
// multiply-add. So a number of rows that is not a multiple of the full tile is split into tiles of
// nearly one height, where that is possible. It is a function of its own to limit register
// pressure.
template <int V, class D, class A, class T = simd::hn::TFromD<D>>
HWY_NOINLINE void strip(D d, i64 rows, i64 depth, Strided<A> a, Rows<const A> b, Rows<T> c,
                        bool add) {
  constexpr int R = tile / (many_registers ? std::max(V, 2) : V);
  i64 i = 0;
  const auto run = [&]<int N>(std::integral_constant<int, N>) {
    micro<N, V>(d, depth, Strided<A>{a.data + i * a.row, a.row, a.column}, b,
                Rows<T>{c.data + i * c.row, c.row}, add);
    i += N;
  };
  i64 full = rows / R;
  if constexpr (R == 6) {
    const i64 tiles = (rows + R - 1) / R, lower = tiles * R - rows;
    if (lower <= tiles) {
      full = tiles - lower;
      for (i64 k = 0; k < lower; ++k) run(std::integral_constant<int, 5>{});
    }
  }
  if (R == 12 && rows % R == 4 && full > 0) --full;  // 8 and 8
  for (i64 k = 0; k < full; ++k) run(std::integral_constant<int, R>{});
  if constexpr (R > 8) {
    while (i + 8 <= rows) run(std::integral_constant<int, 8>{});
  }
  if constexpr (R > 4) {
    if (i + 4 <= rows) run(std::integral_constant<int, 4>{});
  }
  if (i + 2 <= rows) run(std::integral_constant<int, 2>{});
  if (i < rows) run(std::integral_constant<int, 1>{});
}

// Packs rows of V vectors: rows of B that are a power of two apart map to few cache sets and evict
// each other.
template <int V, class D, class A>
void copy_panel(D, i64 count, Rows<const A> b, A* panel) {
  namespace hn = simd::hn;
  const Operands<A, D> operands;
  const auto n = static_cast<i64>(hn::Lanes(operands));
  for (i64 k = 0; k < count; ++k) {
    for (int v = 0; v < V; ++v) {
      hn::StoreU(hn::LoadU(operands, b.data + k * b.row + v * n), operands,
                 panel + (k * V + v) * n);
    }
  }
}

// A strip, one panel after the other.
template <int V, class D, class A, class T = simd::hn::TFromD<D>>
void strip_by_panels(D d, i64 rows, i64 depth, Strided<A> a, Rows<const A> b, Rows<T> c, bool add) {
  alignas(64) A panel[std::size_t(panel_bytes) / sizeof(A)];
  const i64 width = V * static_cast<i64>(simd::hn::Lanes(d));
  const i64 deep = panel_bytes / i64(sizeof(A)) / width;
  for (i64 k = 0; k < depth; k += deep) {
    const i64 count = std::min(deep, depth - k);
    copy_panel<V>(d, count, {b.data + k * b.row, b.row}, panel);
    strip<V>(d, rows, count, Strided<A>{a.data + k * a.column, a.row, a.column},
             Rows<const A>{panel, width}, c, add || k > 0);
  }
}

template <class A>
void by_vectors(i64 rows, i64 columns, i64 depth, Strided<A> a, Rows<const A> b,
                Rows<ProductOf<A>> c, bool add) {
  using T = ProductOf<A>;
  namespace hn = simd::hn;
  constexpr i64 n = simd::lanes<T>;
  i64 j = 0;
  const auto at = [&](auto p) { return decltype(p){p.data + j, p.row}; };
  const simd::Tag<T> wide;
  const auto sweep = [&]<int V>(std::integral_constant<int, V>) {
    const bool panels = !many_registers && rows >= panel_rows && b.row > V * n && depth > 0;
    for (; j + V * n <= columns; j += V * n) {
      panels ? strip_by_panels<V>(wide, rows, depth, a, at(b), at(c), add)
             : strip<V>(wide, rows, depth, a, at(b), at(c), add);
    }
  };
  sweep(std::integral_constant<int, widest>{});
  sweep(std::integral_constant<int, 2>{});
  sweep(std::integral_constant<int, 1>{});
  const auto narrow = [&](auto d) {
    const auto width = static_cast<i64>(hn::Lanes(d));
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

}  // namespace

template <class A>
void tile_product(i64 rows, i64 columns, i64 depth, Strided<A> a, Rows<const A> b,
                  Rows<ProductOf<A>> c, bool add) {
  if constexpr (simd::has_amx && std::is_same_v<A, Bf16Pair>) {
    if (amx::permitted()) {
      return amx::product<amx::Instructions>(rows, columns, depth, a, b, c, add, by_vectors<A>);
    }
  }
  by_vectors(rows, columns, depth, a, b, c, add);
}

TileProducts<Bf16Pair>::TileProducts() {
  if constexpr (simd::has_amx) {
    if (amx::permitted()) outer_ = amx::Configured<amx::Instructions>::enter();
  }
}

TileProducts<Bf16Pair>::~TileProducts() {
  if constexpr (simd::has_amx) amx::Configured<amx::Instructions>::leave(outer_);
}

template void tile_product(i64, i64, i64, Strided<float>, Rows<const float>, Rows<float>, bool);
template void tile_product(i64, i64, i64, Strided<double>, Rows<const double>, Rows<double>, bool);
template void tile_product(i64, i64, i64, Strided<Bf16Pair>, Rows<const Bf16Pair>, Rows<float>,
                           bool);

}  // namespace weft
