// What many tests ask: how far two tensors are apart, and whether a backward is right.
#pragma once

#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "doctest/doctest.h"
#include "tests/sanitized.h"
#include "tests/tolerance.h"

namespace weft {

// Where the tests run what they test: the CPU, or what the program's option --device=cuda says. What
// the functions below return is on the CPU.
Device tested_device();
void set_tested_device(Device device);
// Whether that is a CUDA device that the CPU plays, some thirty times slower than itself.
bool tested_is_emulated();
// Whether some cases have to stand for all there, since not all are wanted.
bool few_on_device();
// The same where the sanitizers watch that device, which makes it ten times slower again.
inline bool fewest_on_device() { return few_on_device() && sanitized; }
// Whether smaller sizes have to stand for all: on that device, and on each under the sanitizers.
inline bool few_wanted() { return few_on_device() || few_here(); }
std::vector<Tensor> on_device(const std::vector<Tensor>& tensors, Device device = tested_device());

// ‖got − wanted‖ / ‖wanted‖ in the Frobenius norm; NaN where either holds one, and infinite where
// the shapes differ.
double relative_error(const Tensor& got, const Tensor& wanted);

// How far each gradient is off, as a share of its size, or of a hundredth of the largest one's
// where that is more, a tenth where it vanishes identically: of such a one both runs have roundings
// of sums that cancel. So it is for the queries of what divides by a normaliser, where each sees
// one key.
struct Run;
std::vector<double> gradient_errors(const Run& got, const Run& wanted);

// Every bit of both is the same.
bool same_bits(const Tensor& a, const Tensor& b);

// Runs f on leaves of these values and walks back from ⟨outputs, w⟩ with random w: the outputs,
// then the gradients of the inputs (undefined where none came).
struct Run {
  std::vector<Tensor> outputs, gradients;
};
Run run(const Differentiable& f, const std::vector<Tensor>& inputs, std::uint64_t seed = 17,
        Device device = tested_device());
void check_same_bits(const Run& got, const Run& wanted);

// gradcheck() with the inputs on the tested device. On an emulated one, and under the sanitizers, a
// few elements have to do: what the gradients are is shown by those of the CPU in the plain build.
GradientError tested_gradients(const Differentiable& f, const std::vector<Tensor>& inputs,
                               std::uint64_t seed = 1, double step = 1e-6, i64 elements = 200);

// The caching allocator at work, also where the tests run without it (tests/poison.cpp).
struct WithCache {
  WithCache();
  ~WithCache();
};

// The same values in another place of the tested device: with gaps along every axis, and the last two
// axes, where there are two, in column order.
Tensor scattered(const Tensor& x);

// Each element of x, f32 or f64, up or down by this share of itself, as the seed says.
Tensor moved_by(double share, const Tensor& x, std::uint64_t seed);

// The floating ones among them in f32, then those back in f64: the same numbers in two types.
std::vector<Tensor> in_f32(const std::vector<Tensor>& inputs);
std::vector<Tensor> in_f64(const std::vector<Tensor>& inputs);

}  // namespace weft

// The backward of f agrees with central differences.
#define CHECK_GRADIENTS(f, ...)                                                   \
  do {                                                                            \
    const ::weft::GradientError found = ::weft::tested_gradients(f, __VA_ARGS__); \
    INFO(found.where);                                                            \
    CHECK(found.worst <= ::weft::tolerance::gradcheck);                           \
  } while (false)

// `expression` throws weft::Error with all of `part` in its message.
#define CHECK_ERROR(expression, part) \
  CHECK_THROWS_WITH_AS((void)(expression), doctest::Contains(part), ::weft::Error)
