// What many tests ask: how far two tensors are apart, and whether a backward is right.
#pragma once

#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "doctest/doctest.h"
#include "tests/tolerance.h"

namespace weft {

// ‖got − wanted‖ / ‖wanted‖ in the Frobenius norm; NaN where either holds one, and infinite where
// the shapes differ.
double relative_error(const Tensor& got, const Tensor& wanted);

// Every bit of both is the same.
bool same_bits(const Tensor& a, const Tensor& b);

// Runs f on leaves of these values and walks back from ⟨outputs, w⟩ with random w: the outputs,
// then the gradients of the inputs (undefined where none came).
struct Run {
  std::vector<Tensor> outputs, gradients;
};
Run run(const Differentiable& f, const std::vector<Tensor>& inputs, std::uint64_t seed = 17);

// Whether the address sanitizer watches this build.
extern const bool sanitized;

// The caching allocator at work, also where the tests run without it (tests/poison.cpp).
struct WithCache {
  WithCache();
  ~WithCache();
};

// The same values in another place: with gaps along every axis, and the last two axes, where there
// are two, in column order.
Tensor scattered(const Tensor& x);

// The floating ones among them in f32, then those back in f64: the same numbers in two types.
std::vector<Tensor> in_f32(const std::vector<Tensor>& inputs);
std::vector<Tensor> in_f64(const std::vector<Tensor>& inputs);

}  // namespace weft

// The backward of f agrees with central differences.
#define CHECK_GRADIENTS(f, ...)                                            \
  do {                                                                     \
    const ::weft::GradientError found = ::weft::gradcheck(f, __VA_ARGS__); \
    INFO(found.where);                                                     \
    CHECK(found.worst <= ::weft::tolerance::gradcheck);                    \
  } while (false)

// `expression` throws weft::Error with all of `part` in its message.
#define CHECK_ERROR(expression, part) \
  CHECK_THROWS_WITH_AS((void)(expression), doctest::Contains(part), ::weft::Error)
