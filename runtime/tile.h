// Products of matrices that are in cache already: no dispatch, one thread.
//
//     C[i, j] (+)= Σ_k A[i, k] B[k, j],   i < rows, j < columns, k < depth
//
// A may have any strides (a transposed or an overlapping window is as good as any other); B and C
// have rows of neighbouring elements. A tile of C stays in registers while k runs: 6 rows × 4
// vectors where there are 32 registers (AVX-512), so that per step 4 loads of B and 6 broadcasts of
// A feed 24 multiply-adds; 6 rows × 2 vectors where there are 16 (AVX2), and there, where many rows
// of A read them, the columns of B are moved together first. On shapes that fit the second-level
// cache this reaches eight to nine tenths of the arithmetic peak, without the fixed cost of a
// library call; for larger ones runtime/matmul.h is the way.
#pragma once

#include <cstdint>

#include "runtime/types.h"

namespace weft {

template <class T>
struct Strided {  // A: any strides, in elements
  const T* data;
  i64 row;
  i64 column;
};

template <class T>
struct Rows {  // B and C: rows of neighbouring elements
  T* data;
  i64 row;
};

// See the head of this file; `add` adds to C. Any number of columns: those past the last whole
// vector go by narrower vectors, down to one lane. T is float or double.
template <class T>
void tile_product(i64 rows, i64 columns, i64 depth, Strided<T> a, Rows<const T> b, Rows<T> c,
                  bool add);

}  // namespace weft
