// gradcheck: a backward against central differences, in f64.
//
// L = ⟨f(inputs), w⟩ with random w (a plain sum cannot see errors in whatever sums to a constant,
// softmax for example). Each input's gradient is compared with (L(x + h) − L(x − h)) / 2h element
// by element; the error of an input is the largest difference over the largest gradient, or 10⁻³ if
// that is more, less the error that the rounding of L alone causes in the quotient, ε Σ |f w| / h,
// which no backward can avoid.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "autograd/variable.h"

namespace weft {

using Differentiable = std::function<std::vector<Variable>(std::span<const Variable>)>;

struct GradientError {
  double worst = 0;    // over all inputs
  std::string where;   // the input and element, with both values
};

// `inputs` are f64 tensors; those of other types are passed to f as constants. At most `elements`
// elements of each input are perturbed, spread evenly.
GradientError gradcheck(const Differentiable& f, std::span<const Tensor> inputs,
                        std::uint64_t seed = 1, double step = 1e-6, i64 elements = 200);

// Random tensors for checks: standard normal, or uniform in [low, high).
Tensor random_normal(const Shape& shape, DType dtype, std::uint64_t seed);
Tensor random_uniform(const Shape& shape, DType dtype, std::uint64_t seed, double low, double high);

}  // namespace weft
