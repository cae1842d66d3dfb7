// Softmax and log-sum-exp over the last axis.
//
//     y_j = e^(x_j − m) / z          dx_j = y_j (dy_j − Σ_k dy_k y_k)
//     lse = m + ln z                 dx_j = dlse e^(x_j − m) / z
//     m = max_j x_j,   z = Σ_j e^(x_j − m)
//
// x [.., V], y [.., V], lse [..]. A row of only −∞ gives y = 0, lse = −∞ and the gradient 0.
//
// Saved: for softmax its result, for log-sum-exp x, as handles, and m and 1/z of each row.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Softmax {
  static constexpr const char* name = "softmax";
  struct Saved {
    Tensor y;
  };
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

struct LogSumExp {
  static constexpr const char* name = "log_sum_exp";
  struct Saved {
    Tensor x, sums;  // [2, rows]: m, 1/z
  };
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dlse) const;
};

// Throw if x has no axis.
Variable softmax(const Variable& x);
Variable log_sum_exp(const Variable& x);

}  // namespace weft
