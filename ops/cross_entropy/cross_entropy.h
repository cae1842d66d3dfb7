// Cross-entropy of classes given by number, from logits.
//
//     loss = (1/R) Σ_r (m_r + ln z_r − x_r,t(r)),   m_r = max_v x_r,v,   z_r = Σ_v e^(x_r,v − m_r)
//     dx_r,v = (dloss/R) (e^(x_r,v − m_r) / z_r − [v = t(r)])
//
// x: logits [.., V], t: targets [..] i64, R of them; loss [], in nats.
//
// Saved: logits and targets as handles, and m and 1/z of each row; the probabilities are
// recomputed. m + ln z as one number would be rounded, which e^x makes a relative error of 2⁻²⁴ |m|
// in f32.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  static constexpr bool keeps_f32 = true;
  struct Saved {
    Tensor logits, targets, sums;  // [2, R]: m, 1/z
  };
  Tensor forward(Saved&, const Tensor& logits, const Tensor& targets) const;
  std::array<Tensor, 2> backward(const Saved&, const Tensor& dloss) const;
};

// Throws, with the position and the target, if one is not in 0 … V − 1. On a CUDA device, where the
// host does not wait for the targets, such a target makes the loss and its row of dx NaN instead.
Variable cross_entropy(const Variable& logits, const Tensor& targets);

// The targets of the rows of x (its last axis is excluded), row-major; `op` begins the errors.
// Their values are checked if the host can read them without waiting.
Tensor cross_entropy_targets(const char* op, const Tensor& targets, const Tensor& x, i64 classes);

// −ln softmax(logits)[target] of every position, in nats, f64 [..]; no gradient.
Tensor cross_entropy_rows(const Tensor& logits, const Tensor& targets);

}  // namespace weft
