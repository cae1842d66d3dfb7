// The singular values of a matrix, for pictures of rank collapse.
//
// One-sided Jacobi (M. R. Hestenes 1958; J. Demmel, K. Veselić, "Jacobi's method is more accurate
// than QR", SIAM J. Matrix Anal. Appl. 13, 1992): the rows are turned against each other, two at a
// time,
//
//     a = |r_i|²,  b = |r_j|²,  c = r_i · r_j,   ζ = (b − a) / 2c,
//     t = sign(ζ) / (|ζ| + √(1 + ζ²)),
//     r_i, r_j ← (r_i − t r_j)/√(1 + t²), (r_j + t r_i)/√(1 + t²)
//
// until all are orthogonal: |c| <= ε √(a b). Their lengths are then the singular values, small ones
// as accurate as large ones. Of a matrix with fewer columns than rows, the columns are turned.
#pragma once

#include <vector>

#include "runtime/tensor.h"

namespace weft::vision {

// Of a matrix [n, m], min(n, m) of them, falling. Throws where an element is not finite.
std::vector<double> singular_values(const Tensor& matrix);

}  // namespace weft::vision
