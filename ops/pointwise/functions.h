// The scalar maths of the pointwise functions, y = f(x) and dy/dx, written once for all kernels and
// devices: X is float, double, or a vector of them (runtime/pack.h). The equations are in
// pointwise.h.
//
// `derivative` takes y if `from_result` says so, otherwise x: whichever is cheaper. All are
// constexpr, so that nvcc lets device code call them.
#pragma once

#include <cmath>
#include <numbers>
#include <type_traits>

#include "runtime/dtype.h"

namespace weft {

constexpr float where(bool condition, float a, float b) { return condition ? a : b; }
constexpr double where(bool condition, double a, double b) { return condition ? a : b; }

// f and its derivative at one point, for callers that want both.
template <class X>
struct ValueAndSlope {
  X value, slope;
};

inline constexpr double sqrt_2_over_pi = 0.79788456080286535588;  // √(2/π)
inline constexpr double sqrt_1_over_2 = 0.70710678118654752440;   // 1/√2

struct Relu {
  static constexpr const char* name = "relu";
  static constexpr bool from_result = true;
  template <class X>
  static constexpr X value(X x) {
    return where(x < X(0), X(0), x);
  }
  template <class X>
  static constexpr X derivative(X y) {
    return where(X(0) < y, X(1), X(0));
  }
  template <class X>
  static constexpr ValueAndSlope<X> both(X x) {
    const X y = value(x);
    return {y, derivative(y)};
  }
};

struct LeakyRelu {  // A. L. Maas et al., ICML 2013
  static constexpr const char* name = "leaky_relu";
  static constexpr bool from_result = true;
  template <class X>
  static constexpr X value(X x) {
    return where(X(0) < x, x, X(0.01) * x);
  }
  template <class X>
  static constexpr X derivative(X y) {
    return where(X(0) < y, X(1), X(0.01));
  }
};

struct Elu {  // D.-A. Clevert et al., arXiv 1511.07289, α = 1
  static constexpr const char* name = "elu";
  static constexpr bool from_result = true;
  template <class X>
  static constexpr X value(X x) {
    using std::expm1;
    return where(x < X(0), expm1(where(x < X(0), x, X(0))), x);
  }
  template <class X>
  static constexpr X derivative(X y) {
    return where(y < X(0), y + X(1), X(1));
  }
};

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  static constexpr bool from_result = true;
  template <class X>
  static constexpr X value(X x) {
    using std::exp;
    return X(1) / (X(1) + exp(-x));
  }
  template <class X>
  static constexpr X derivative(X y) {
    return y * (X(1) - y);
  }
};

struct Tanh {
  static constexpr const char* name = "tanh";
  static constexpr bool from_result = true;
  template <class X>
  static constexpr X value(X x) {
    using std::tanh;
    return tanh(x);
  }
  template <class X>
  static constexpr X derivative(X y) {
    return X(1) - y * y;
  }
};

struct Exp {
  static constexpr const char* name = "exp";
  static constexpr bool from_result = true;
  template <class X>
  static constexpr X value(X x) {
    using std::exp;
    return exp(x);
  }
  template <class X>
  static constexpr X derivative(X y) {
    return y;
  }
};

struct Log {
  static constexpr const char* name = "log";
  static constexpr bool from_result = false;
  template <class X>
  static constexpr X value(X x) {
    using std::log;
    return log(x);
  }
  template <class X>
  static constexpr X derivative(X x) {
    return X(1) / x;
  }
};

struct Sqrt {
  static constexpr const char* name = "sqrt";
  static constexpr bool from_result = true;
  template <class X>
  static constexpr X value(X x) {
    using std::sqrt;
    return sqrt(x);
  }
  template <class X>
  static constexpr X derivative(X y) {
    return where(X(0) < y, X(0.5) / y, X(0) * y);  // 0 at 0, NaN for NaN
  }
};

struct Silu {
  static constexpr const char* name = "silu";
  static constexpr bool from_result = false;
  template <class X>
  static constexpr X value(X x) {
    return x * Sigmoid::value(x);
  }
  template <class X>
  static constexpr X derivative(X x) {
    return both(x).slope;
  }
  template <class X>
  static constexpr ValueAndSlope<X> both(X x) {
    const X s = Sigmoid::value(x), y = x * s;
    return {y, s + y * (X(1) - s)};
  }
};

struct Gelu {
  static constexpr const char* name = "gelu";
  static constexpr bool from_result = false;
  template <class X>
  static constexpr X gate(X x) {  // σ(2u) = 1 / (1 + 2^(−2u log₂e))
    using std::exp2;
    constexpr double linear = -2 * sqrt_2_over_pi * std::numbers::log2e;
    return X(1) / (X(1) + exp2(x * (X(linear) + X(linear * 0.044715) * (x * x))));
  }
  template <class X>
  static constexpr X value(X x) {
    return x * gate(x);
  }
  template <class X>
  static constexpr X derivative(X x) {
    return both(x).slope;
  }
  template <class X>
  static constexpr ValueAndSlope<X> both(X x) {
    const X s = gate(x), y = x * s;
    // For |x| > 1000, s is 0 or 1, and 0 times infinity would be NaN.
    const X most = X(1e6), square = where(most < x * x, most, x * x);
    const X inner = X(2 * sqrt_2_over_pi) + X(6 * sqrt_2_over_pi * 0.044715) * square;
    return {y, s + y * (X(1) - s) * inner};
  }
};

struct GeluErf {
  static constexpr const char* name = "gelu_erf";
  static constexpr bool from_result = false;
  template <class X>
  static constexpr X gate(X x) {  // Φ(x)
    using std::erfc;
    return X(0.5) * erfc(x * X(-sqrt_1_over_2));
  }
  template <class X>
  static constexpr X density(X x) {  // φ(x)
    using std::exp;
    return exp(x * x * X(-0.5)) * X(0.5 * sqrt_2_over_pi);
  }
  template <class X>
  static constexpr X value(X x) {
    return x * gate(x);
  }
  template <class X>
  static constexpr X derivative(X x) {
    return gate(x) + x * density(x);
  }
};

struct NormalCdf {
  static constexpr const char* name = "normal_cdf";
  static constexpr bool from_result = false;
  template <class X>
  static constexpr X value(X x) {
    return GeluErf::gate(x);
  }
  template <class X>
  static constexpr X derivative(X x) {
    return GeluErf::density(x);
  }
};

// Whether the op saves y for its derivative, or x. In bf16 it saves x, since y is rounded.
template <class F, class S>
inline constexpr bool keeps_result = F::from_result && !std::is_same_v<S, bf16>;

// dy/dx of the function over elements of type S, from what the op saved.
template <class F, class S, class X>
constexpr X slope(X kept) {
  if constexpr (F::from_result && !keeps_result<F, S>) {
    return F::derivative(F::value(kept));
  } else {
    return F::derivative(kept);
  }
}

// --- of two variables

struct Plus {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return a + b;
  }
};
struct Minus {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return a - b;
  }
};
struct Times {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return a * b;
  }
};
struct Over {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return a / b;
  }
};
struct Larger {  // if neither is larger, one is NaN, and so is their sum
  template <class X>
  constexpr X operator()(X a, X b) const {
    return where(b <= a, a, where(a < b, b, a + b));
  }
};
// The slopes of max(a, b): with respect to b, and to a.
struct Below {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return where(a < b, X(1), X(0));
  }
};
struct NotBelow {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return where(a < b, X(0), X(1));
  }
};

// --- lists from which the kernels of a device are instantiated

template <class... F>
struct Functions {
  template <class G>
  static constexpr int number() {
    static_assert((std::is_same_v<F, G> || ...), "the function is missing from the list");
    int at = 0;
    static_cast<void>(((std::is_same_v<F, G> || (++at, false)) || ...));
    return at;
  }
  // Calls f(function) with the function of that number.
  template <class Call>
  static void with(int number, const Call& call) {
    int at = 0;
    ((at++ == number ? call(F{}) : void()), ...);
  }
};

using UnaryFunctions =
    Functions<Relu, Sigmoid, Tanh, Exp, Log, Sqrt, Silu, Gelu, GeluErf, LeakyRelu, Elu, NormalCdf>;
using BinaryFunctions = Functions<Plus, Minus, Times, Over, Larger, Below, NotBelow>;

template <class F>
inline constexpr int unary_number = UnaryFunctions::number<F>();
template <class F>
inline constexpr int binary_number = BinaryFunctions::number<F>();

}  // namespace weft
