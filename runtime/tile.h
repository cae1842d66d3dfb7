// Products of matrices that are already in cache: no dispatch, one thread.
//
//     C[i, j] (+)= Σ_k A[i, k] B[k, j],   i < rows, j < columns, k < depth
//
// A may have any strides (transposed or overlapping windows included); B and C have contiguous
// rows. A tile of C stays in registers while k runs: 6 rows × 4 vectors with 32 registers
// (AVX-512), so that a step has 4 loads of B and 6 broadcasts of A for 24 multiply-adds; 6 rows × 2
// vectors with 16 (AVX2), where the columns of B are packed first if many rows of A read them. On
// shapes that fit the L2 cache this reaches eight to nine tenths of the arithmetic peak, without
// the overhead of a library call; larger ones are for runtime/matmul.h. Pairs of bf16 go by AMX
// where the processor has it (runtime/amx.h).
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/types.h"

namespace weft {

template <class T>
struct Strided {  // A: any strides, in elements
  const T* data;
  i64 row;
  i64 column;
};

template <class T>
struct Rows {  // B and C: contiguous rows
  T* data;
  i64 row;
};

// Two bf16 along the depth, the first in the lower half: the operand of AVX512-BF16, which adds the
// two products of a pair in f32. Without it a pair takes two multiply-adds.
using Bf16Pair = std::int32_t;
template <class A>
using ProductOf = std::conditional_t<std::is_same_v<A, Bf16Pair>, float, A>;

// See the head of this file; `add` adds to C. Any number of columns: the tail beyond the last whole
// vector uses narrower vectors, down to one lane. T is float, double or Bf16Pair; `depth` counts
// the pairs.
template <class T>
void tile_product(i64 rows, i64 columns, i64 depth, Strided<T> a, Rows<const T> b,
                  Rows<ProductOf<T>> c, bool add);

// Lives around many products of A on one thread, which then need not prepare the processor each;
// see amx::Configured. Other libraries that use AMX must not be called meanwhile.
template <class A>
class TileProducts {};
template <>
class TileProducts<Bf16Pair> {
 public:
  TileProducts();
  ~TileProducts();
  TileProducts(const TileProducts&) = delete;
  TileProducts& operator=(const TileProducts&) = delete;

 private:
  bool outer_ = true;
};

}  // namespace weft
