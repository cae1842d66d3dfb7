// Right-hand matrices of products in bf16 on the CPU, prepared (gemm.h) once for several products.
//
// A layout is as large as its matrix, whose columns the library may pad. It is kept beside the
// bytes that it was made of, and freed with them, if keep_prepared() promised that these no longer
// change. Otherwise each call makes one of its own, so that a matrix may be rewritten between two
// products.
#pragma once

#include "runtime/gemm.h"
#include "runtime/tensor.h"

namespace weft {

// A matrix of bf16 whose rows or columns are contiguous. It is called before a parallel loop, not
// inside: what is kept belongs to the thread that uses the matrix.
PreparedRight prepared(const Tensor& matrix);

// The elements of x do not change from here on: prepared() keeps the layouts of x and its views.
void keep_prepared(const Tensor& x);

}  // namespace weft
