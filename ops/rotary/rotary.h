// Rotary positions: pairs of features are rotated by an angle that grows with the position, so that
// the product of a query and a key depends on the difference of their positions only. J. Su et al.,
// "RoFormer: enhanced transformer with rotary position embedding", 2021, arXiv 2104.09864, eqs. 14
// to 16 and 34.
//
// x [B, N, H, E] with an even E; position p = first + n; pairs i = 0 … E/2 − 1:
//
//     θ_i = base^(−2i/E),   c = cos(p θ_i),   s = sin(p θ_i)
//     y[2i]   = c x[2i] − s x[2i+1]
//     y[2i+1] = s x[2i] + c x[2i+1]
//
// The pairs are 2i and 2i + 1, as in the paper; other programs pair i with i + E/2, which is the
// same up to a permutation of the features. base is 10000, the paper's.
//
// With R_p the rotation by p, R_pᵀ = R_−p and R_p R_p' = R_(p+p'), hence
//
//     (R_p q) · (R_p' k) = q · R_(p'−p) k
//
// and backward rotates in the other direction:
//
//     dx[2i]   =   c dy[2i] + s dy[2i+1]
//     dx[2i+1] = − s dy[2i] + c dy[2i+1]
//
// Angles, sines and cosines are in f64: in f32 an angle of 10⁵ is too coarse to distinguish
// neighbouring positions.
//
// Saved: nothing.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Rotary {
  static constexpr const char* name = "rotary";
  static constexpr bool takes_bf16 = true;
  i64 first = 0;
  double base = 10000;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

// x [B, N, H, E] → the same shape; x[:, n] is at position first + n. Throws if E is odd,
// first is negative, or the base is not above 1.
Variable rotary(const Variable& x, i64 first = 0, double base = 10000);

}  // namespace weft
