// Moving averages: convolutions along a sequence whose kernels are sums of decaying exponentials.
// X. Ma et al., "Mega: moving average equipped gated attention", ICLR 2023, arXiv 2209.10655,
// section 3.1: the multi-dimensional damped exponential moving average.
//
// Every channel has n states of its own. Per batch item and channel, with the decay q_k and the
// weight c_k of state k,
//
//     κ_τ = Σ_k c_k q_k^τ                    0 <= τ, and τ < t with `truncation` = t above 0
//     y_i = Σ_τ κ_τ x_{i−τ}                  D = 1: the past
//     y_i = Σ_τ κ_τ x_{i−τ} + κ'_τ x_{i+τ}   D = 2: and the future, by coefficients of its own
//
//     x, y [B, N, d]   q, c [D, d, n]   lengths [B]: x at and past it counts 0, and y is 0 there
//
// Lag 0 counts in both directions. In the paper, with p = σ(δ) and α = σ(α̃), all [D, d, n],
//
//     q = 1 − p α,   c = p β γ / √n
//
// Forward. The state is a recurrence, so that time is N d n and no kernel of N lags is formed:
//
//     s_i = x_i + q s_{i−1} − q^t x_{i−t},   y_i = Σ_k c_k s_{k,i}
//
// The last term of s exists only with a truncation: it removes what is t steps old, up to its
// rounding, and a NaN or an infinity never. The future is the same from the last position to the
// first.
//
// Backward. x_j reaches y_i through κ_{i−j}, so that dx is the average of dy in the other
// direction:
//
//     dx_j = Σ_τ κ_τ dy_{j+τ}
//
// which is forward on dy, from the last position to the first for the past, and from the first to
// the last for the future. For the coefficients let w_i = ∂s_i/∂q. Differentiating s,
//
//     w_i = s_{i−1} + q w_{i−1} − t q^{t−1} x_{i−t}
//     dc = Σ_i dy_i s_i,   dq = c Σ_i dy_i w_i                     over items and positions
//
// w is carried beside s from the first position on. Since a state depends on one q alone, that is
// two numbers a state instead of one; no state is saved, and none has to be computed backwards.
//
// Saved: x, q and c as handles. Operations a position, channel and state: 4 forward, 4 for dx and 8
// for dq and dc; with a truncation 2, 2 and 4 more. The sums of dq and dc are accumulated in f64,
// in an order that depends on the shapes only.
//
// Decoding keeps the states, n numbers a channel; with a truncation also the last t rows of x.
//
// Files, in the order of reading: this; kernels.h; moving_average_cpu.cpp; moving_average.cpp (the
// op); moving_average.cu.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct MovingAverage {
  static constexpr const char* name = "moving_average";
  Tensor lengths;
  i64 truncation = 0;

  struct Saved {
    Tensor x, decay, weight;
  };
  Tensor forward(Saved&, const Tensor& x, const Tensor& decay, const Tensor& weight) const;
  std::array<Tensor, 3> backward(const Saved&, Wants, const Tensor& dy) const;
  // y [B, n, d] of the last n rows of x [B, earlier + n, d]: the past alone, without lengths.
  // `state` [B, d, n], packed, is that before those rows, initially zeros, and is overwritten by
  // that after them.
  Tensor step(const Tensor& x, i64 earlier, const Tensor& decay, const Tensor& weight,
              const Tensor& state) const;
};

// Decoding: the state between the rows so far and those to come.
class MovingAverageState {
 public:
  explicit MovingAverageState(i64 truncation) : truncation_(truncation) {}

  // y [B, n, d] of the next rows x [B, n, d].
  Tensor step(const Tensor& x, const Tensor& decay, const Tensor& weight);
  i64 bytes() const;

 private:
  i64 truncation_;
  Tensor state_, rows_;  // [B, d, n]; with a truncation the last rows [B, ≤ truncation, d]
};

// x [B, N, d], decay and weight [D, d, n], D = 1 or 2; lengths [B] i64 on the device of x, or
// undefined. Throws if shapes or types do not fit, or the truncation is below 0.
Variable moving_average(const Variable& x, const Variable& decay, const Variable& weight,
                        const Tensor& lengths = {}, i64 truncation = 0);

// q and c of δ, α̃, β and γ, all [D, d, n].
struct DampedAverage {
  Variable decay, weight;

  DampedAverage(const Variable& delta, const Variable& alpha, const Variable& beta,
                const Variable& gamma);
};

}  // namespace weft
