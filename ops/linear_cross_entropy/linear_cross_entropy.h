// Cross-entropy of logits that are products with a table of classes and are never all stored: the
// output of a language model with a large vocabulary.
//
//     z_r,v = x_r · e_v,    loss = (1/R) Σ_r (lse_r − z_r,t(r)),    lse_r = ln Σ_v e^(z_r,v)
//     g_r,v = (1/R) (e^(z_r,v − lse_r) − [v = t(r)])
//     dx = dloss g E,   dE = dloss gᵀ x
//
// x [.., d], table E [V, d], targets t [..] i64, R of them; loss [], in nats.
//
// The logits of a block of rows become their g, and g their part of dx and dE: forward computes the
// gradients if a tape is alive, and backward multiplies them by dloss. So each product is computed
// once, and R·V numbers are never stored.
//
// On the CPU logits are exponentiated one panel of classes at a time while they are in cache, with
// the largest logit of the panel as m; when the sums of all panels are known, e^(z − m) of a panel
// times e^(m − lse)/R is its part of g except for the targets, and is used for both products at
// once.
//
// In bf16, E may be f32: it is rounded to bf16, and so is g, for the products, which are summed in
// f32. Logits, sums and the loss are f32.
//
// Saved: g E and gᵀ x, of the shapes of x and E, in f32 if x is bf16.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct LinearCrossEntropy {
  static constexpr const char* name = "linear_cross_entropy";
  static constexpr bool takes_bf16 = true;
  struct Saved {
    Tensor dx, dtable;
    DType type_of_x = DType::f32, type_of_table = DType::f32;
  };
  Tensor forward(Saved&, const Tensor& x, const Tensor& table, const Tensor& targets) const;
  std::array<Tensor, 3> backward(const Saved&, Wants wants, const Tensor& dloss) const;
};

// The kernel of forward; its tensors are checked and packed, x [R, d] and targets [R], x and table
// of type T. Writes nats [R] in f64 and, if they are defined, the gradients.
template <class Device, class T>
struct LinearCrossEntropyKernels {
  using Gradients = LinearCrossEntropy::Saved;
  static void forward(const Device&, const Tensor& x, const Tensor& table, const Tensor& targets,
                      const Tensor& nats, const Gradients& gradients);
};

// Throws if a target is not in 0 … V − 1, as cross_entropy() does.
Variable linear_cross_entropy(const Variable& x, const Variable& table, const Tensor& targets);

// −ln softmax(x Eᵀ)[target] of every position, in nats, f64 [..]; no gradient.
Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& table, const Tensor& targets);

}  // namespace weft
