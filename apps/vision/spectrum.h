// The singular values of a matrix, for the analysis of rank collapse.
//
// One-sided Jacobi (M. R. Hestenes 1958; J. Demmel, K. Veselić, "Jacobi's method is more accurate
// than QR", SIAM J. Matrix Anal. Appl. 13, 1992): pairs of rows are made orthogonal by rotations,
//
//     a = |r_i|²,  b = |r_j|²,  c = r_i · r_j,   ζ = (b − a) / 2c,
//     t = sign(ζ) / (|ζ| + √(1 + ζ²)),
//     r_i, r_j ← (r_i − t r_j)/√(1 + t²), (r_j + t r_i)/√(1 + t²)
//
// until all pairs are orthogonal: |c| <= ε √(a b). The singular values are then the norms of the
// rows, with the same relative accuracy for small and large ones. If the matrix has fewer columns
// than rows, its transpose is used.
#pragma once

#include <vector>

#include "runtime/tensor.h"

namespace weft::vision {

// The min(n, m) singular values of a matrix [n, m], descending. Throws if an element is not finite.
std::vector<double> singular_values(const Tensor& matrix);

}  // namespace weft::vision
