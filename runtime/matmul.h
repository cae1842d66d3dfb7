// Matrix products.
//
// On the CPU, small products, whose right-hand matrix fits the L2 cache, are computed by
// runtime/tile.h, the others by oneDNN (f32) or OpenBLAS (f64, and f32 without oneDNN), always on
// one thread: rows and batch are split over our own threads. Every element of the result is
// computed by one task, so the bits do not depend on the number of threads. On CUDA devices:
// cuBLAS.
//
// Products of bf16 are summed in f32, by oneDNN and cuBLAS; the target is bf16 or f32.
#pragma once

#include <string>

#include "runtime/tensor.h"

namespace weft {

// A matrix in memory with any strides, for the single-threaded kernels.
template <class T>
struct Matrix {
  T* data;
  i64 rows, columns;
  i64 row_stride, column_stride;  // in elements
};

// Rows begin … end − 1 of packed rows of `width` elements.
template <class T>
Matrix<T> rows_of(T* data, i64 begin, i64 end, i64 width) {
  return {data + begin * width, end - begin, width, width, 1};
}

// [.., n] as the matrix [rows, n] of its rows; no copy.
inline Tensor as_rows(const Tensor& x) { return x.reshape({x.rows(), x.size(-1)}); }

// c (+)= a b on the calling thread. c's rows must be contiguous. C is T, or float for bf16.
template <class T, class C = T>
void matmul(const Cpu&, const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<C>& c,
            bool add = false);

extern template void matmul(const Cpu&, const Matrix<const float>&, const Matrix<const float>&,
                            const Matrix<float>&, bool);
extern template void matmul(const Cpu&, const Matrix<const double>&, const Matrix<const double>&,
                            const Matrix<double>&, bool);
extern template void matmul(const Cpu&, const Matrix<const bf16>&, const Matrix<const bf16>&,
                            const Matrix<bf16>&, bool);
extern template void matmul(const Cpu&, const Matrix<const bf16>&, const Matrix<const bf16>&,
                            const Matrix<float>&, bool);

// The kernel of matmul_into() below, after its checks. T is the type of a and b.
template <class Device, class T>
struct MatmulKernels {
  static void batched(const Device&, const Tensor& a, const Tensor& b, const Tensor& c, bool add);
};

// [..., m, k] × [..., k, n] → [..., m, n], batched over equal leading axes; a right-hand side of
// two axes is broadcast over the batch. Transposed and strided views are not copied.
Tensor matmul(const Tensor& a, const Tensor& b);
// The same into (or, with `add`, added to) an existing tensor whose last axis is contiguous. It may
// be f32 if a and b are bf16.
void matmul_into(const Tensor& a, const Tensor& b, const Tensor& c, bool add = false);

// Whether products of f32 on CUDA devices round their operands to TF32, eleven significant bits,
// for tensor cores. Not unless it is set; set it before a step is captured.
bool products_in_tf32();
void set_products_in_tf32(bool);

// "f32 oneDNN 2.6.3, f64 OpenBLAS 0.3.21 (Zen), bf16 by f32": the libraries of large products; for
// --version and benches.
std::string matmul_library();

}  // namespace weft
