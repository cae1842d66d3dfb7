// Layer normalisation over the last axis, alone or fused with the residual sum before it.
// J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer normalization", arXiv 1607.06450, eq. 4.
//
//     μ = mean(z),  r = 1/√(mean((z − μ)²) + ε),  ẑ = (z − μ) r,  y = g ⊙ ẑ + b
//
//     layer_norm:                      z = x
//     residual_layer_norm, dropout on the sum:     z = drop(x + branch)
//                          dropout on the branch:  z = x + drop(branch)
//
// drop multiplies by the mask of ops/dropout with rows along the last axis; the first of several
// axes counts examples.
//
// Backward, per row of width d:
//     dẑ = g ⊙ dy,   dz = r (dẑ − mean(dẑ) − ẑ mean(dẑ ⊙ ẑ)),   dg = Σ dy ⊙ ẑ,   db = Σ dy
//     dropout on the sum: dx = dbranch = drop(dz);   on the branch: dx = dz, dbranch = drop(dz)
//
// Saved: ẑ and r (not x: it has the same size, and every gradient needs ẑ). The mask is drawn
// again.
//
// In bf16, the gain and the bias may be f32, and so are their gradients then; ẑ and r are f32.
#pragma once

#include "autograd/apply.h"
#include "ops/layer_norm/kernels.h"

namespace weft {

struct LayerNorm {
  static constexpr const char* name = "layer_norm";
  static constexpr bool takes_bf16 = true;
  double epsilon = 1e-5;
  DropoutOn dropout_on = DropoutOn::sum;
  double dropout = 0;
  RandomKey random = {};

  struct Saved {
    Tensor normalised, inverse_deviation, gain;  // [rows, d], [rows], [d]
    bool branched = false;
    DType learnt = DType::f32;  // of the gain and the bias as they were given
  };
  // `branch` may be undefined: plain layer normalisation of x [.., d].
  Tensor forward(Saved&, const Tensor& x, const Tensor& branch, const Tensor& gain,
                 const Tensor& bias) const;
  std::array<Tensor, 4> backward(const Saved&, const Tensor& dy) const;
};

// x [.., d], gain [d], bias [d] → [.., d]
Variable layer_norm(const Variable& x, const Variable& gain, const Variable& bias,
                    double epsilon = 1e-5);

struct Residual {
  DropoutOn dropout_on = DropoutOn::sum;
  double dropout = 0;
  RandomKey random = {};
  double epsilon = 1e-5;
};

// x and branch of one shape [.., d].
Variable residual_layer_norm(const Variable& x, const Variable& branch, const Variable& gain,
                             const Variable& bias, const Residual& options);

}  // namespace weft
