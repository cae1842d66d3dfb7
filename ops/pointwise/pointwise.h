// Pointwise ops: element by element, with NumPy's broadcasting of two inputs.
//
//     add        c = a + b         da = dc               db = dc
//     sub        c = a − b         da = dc               db = −dc
//     mul        c = a b           da = dc b             db = dc a
//     div        c = a / b         da = dc / b           db = −(dc / b) c
//     maximum    c = max(a, b)     da = dc [a >= b]      db = dc [a < b]
//     scale      y = α x           dx = α dy
//     relu       y = max(x, 0)     dx = dy [y > 0]       (0 at x = 0)
//     leaky_relu y = x, or 0.01 x where x <= 0           dx = dy, or 0.01 dy
//     elu        y = x, or e^x − 1 where x <= 0          dx = dy, or dy (y + 1)
//     sqrt       y = √x            dx = dy / (2y)        (0 at x = 0)
//     sigmoid    y = 1/(1 + e^−x)  dx = dy y (1 − y)
//     tanh       y = tanh x        dx = dy (1 − y²)
//     exp        y = e^x           dx = dy y
//     log        y = ln x          dx = dy / x
//     silu       y = x s           dx = dy (s + x s (1 − s)),         s = σ(x)
//     gelu       y = x s           dx = dy (s + x s (1 − s) 2u'),     s = σ(2u)
//                u = √(2/π) (x + 0.044715 x³),   u' = √(2/π) (1 + 3·0.044715 x²)
//     gelu_erf   y = x Φ(x)        dx = dy (Φ(x) + x φ(x))
//                Φ(x) = ½ erfc(−x/√2),   φ(x) = e^(−x²/2) / √(2π)
//     normal_cdf y = Φ(x)          dx = dy φ(x)
//
// The tanh form of GELU (D. Hendrycks, K. Gimpel, arXiv 1606.08415) is ½ x (1 + tanh u), and
// ½ (1 + tanh u) = σ(2u). If one of two inputs was broadcast, its gradient is summed over the axes
// that repeated it.
//
// At a kink one value is chosen. Equal inputs of maximum: all of dc goes to a. sqrt at 0, where its
// slope is infinite: 0, so that the norm √(Σ x²) has the gradient 0 at x = 0, one of its
// subgradients. A NaN in either input of maximum is propagated to the output.
//
// Saved: for add and sub the two shapes, for mul and maximum their inputs, for div b and c; for
// functions of one variable x or y, whichever gives the cheaper derivative (see functions.h), in
// bf16 x. All as handles.
//
// bf16 is read and written as it is, unless another input is f32. div is computed from f32 copies,
// since its gradients are products of quotients.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Add {
  static constexpr const char* name = "add";
  static constexpr bool takes_bf16_alone = true;
  struct Saved {
    Shape a, b;
  };
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const;
  std::array<Tensor, 2> backward(const Saved&, Wants, const Tensor& dc) const;
};

struct Sub {
  static constexpr const char* name = "sub";
  static constexpr bool takes_bf16_alone = true;
  struct Saved {
    Shape a, b;
  };
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const;
  std::array<Tensor, 2> backward(const Saved&, Wants, const Tensor& dc) const;
};

struct Mul {
  static constexpr const char* name = "mul";
  static constexpr bool takes_bf16_alone = true;
  struct Saved {
    Tensor a, b;
  };
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const;
  std::array<Tensor, 2> backward(const Saved&, Wants, const Tensor& dc) const;
};

struct Div {
  static constexpr const char* name = "div";
  struct Saved {
    Shape a;
    Tensor b, c;
  };
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const;
  std::array<Tensor, 2> backward(const Saved&, Wants, const Tensor& dc) const;
};

struct Maximum {
  static constexpr const char* name = "maximum";
  static constexpr bool takes_bf16_alone = true;
  struct Saved {
    Tensor a, b;
  };
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const;
  std::array<Tensor, 2> backward(const Saved&, Wants, const Tensor& dc) const;
};

struct Scale {
  static constexpr const char* name = "scale";
  static constexpr bool takes_bf16 = true;
  double factor;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

// F is one of functions.h.
template <class F>
struct Pointwise {
  static constexpr const char* name = F::name;
  static constexpr bool takes_bf16 = true;
  struct Saved {
    Tensor kept;  // x or y
  };
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

// Throw if the shapes do not broadcast or the element types differ.
Variable add(const Variable& a, const Variable& b);
Variable sub(const Variable& a, const Variable& b);
Variable mul(const Variable& a, const Variable& b);
Variable div(const Variable& a, const Variable& b);  // by IEEE 754: 0/0 is NaN
Variable maximum(const Variable& a, const Variable& b);

Variable scale(const Variable& x, double factor);
Variable relu(const Variable& x);
Variable leaky_relu(const Variable& x);
Variable elu(const Variable& x);
Variable sigmoid(const Variable& x);
Variable tanh(const Variable& x);
Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable sqrt(const Variable& x);  // NaN below 0
Variable silu(const Variable& x);
Variable gelu(const Variable& x);      // the tanh form
Variable gelu_erf(const Variable& x);  // the exact one
Variable normal_cdf(const Variable& x);

}  // namespace weft
