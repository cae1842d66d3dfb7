// Shared checks of tests: the distance of two tensors, and whether a backward is right.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "doctest/doctest.h"
#include "tests/numbers.h"
#include "tests/sanitized.h"
#include "tests/tolerance.h"

namespace weft {

// The device of the tests: the CPU, or the one of the program's option --device=cuda. The functions
// below return tensors on the CPU.
Device tested_device();
void set_tested_device(Device device);
// Whether that is an emulated CUDA device, some thirty times slower than the CPU.
bool tested_is_emulated();
// Whether some cases represent all on the device, since not all are wanted.
bool few_on_device();
// The same under the sanitizers, which make that device ten times slower again.
inline bool fewest_on_device() { return few_on_device() && sanitized; }
// Whether smaller sizes represent all: on that device, and on each under the sanitizers.
inline bool few_wanted() { return few_on_device() || few_here(); }
std::vector<Tensor> on_device(const std::vector<Tensor>& tensors, Device device = tested_device());

// ‖got − wanted‖ / ‖wanted‖ in the Frobenius norm; NaN if either holds one, and infinite if the
// shapes differ.
double relative_error(const Tensor& got, const Tensor& wanted);

// The larger of two errors; NaN if one of them is, which std::max may drop.
inline double worse(double a, double b) { return a != a || b <= a ? a : b; }

// The error of each gradient, relative to its size, or to a hundredth of the largest one's if that
// is more, a tenth if it vanishes identically: in that case both runs have only the rounding errors
// of sums that cancel. So it is for the queries of a mechanism that divides by a normaliser, if
// each sees one key.
struct Run;
std::vector<double> gradient_errors(const Run& got, const Run& wanted);

// Whether a gradient of a run in f64 is 0 but for rounding errors: a sum of terms as large as those
// of the others.
bool vanishes(const Run& run, std::size_t i);

// Every bit of both is the same.
bool same_bits(const Tensor& a, const Tensor& b);

// A leaf of these values, a vector.
inline Variable leaf(const std::vector<double>& values) {
  return Variable::leaf(Tensor::from(values, {static_cast<i64>(values.size())}));
}

// A vector of these lengths, on the CPU.
inline Tensor lengths_of(const std::vector<i64>& lengths) {
  return Tensor::from(lengths, {static_cast<i64>(lengths.size())});
}

// Runs f on leaves of these values and backward from ⟨outputs, w⟩ with random w, rounded to
// `cotangents`: the outputs, then the gradients of the inputs (undefined if there are none).
struct Run {
  std::vector<Tensor> outputs, gradients;
  std::vector<Tensor> all() const;  // the outputs, then the gradients
};
Run run(const Differentiable& f, const std::vector<Tensor>& inputs, std::uint64_t seed = 17,
        Device device = tested_device(), DType cotangents = DType::f32);
// The same for an f of one output, with this cotangent.
Run run_for(const Tensor& dout, const Differentiable& f, const std::vector<Tensor>& inputs,
            Device device = tested_device());
void check_same_bits(const Run& got, const Run& wanted);
// `plain` is another computation in the precision of `got`, asked for where a gradient's error is
// above `backward`: thrice the error of that one is allowed.
void check_close(const Run& got, const Run& wanted, double forward = tolerance::forward_f64,
                 double backward = tolerance::backward_f64, const std::function<Run()>& plain = {});

// gradcheck() with the inputs on the tested device. On an emulated one, and under the sanitizers,
// only for a few elements: the CPU's gradients are checked in the plain build.
GradientError tested_gradients(const Differentiable& f, const std::vector<Tensor>& inputs,
                               std::uint64_t seed = 1, double step = 1e-6, i64 elements = 200);

// Enables the caching allocator, also if the tests run without it (tests/poison.cpp).
struct WithCache {
  WithCache();
  ~WithCache();
};

// The same values in other memory of the tested device: with gaps along every axis, and the last
// two axes, if there are two, in column order.
Tensor scattered(const Tensor& x);

// Each element of x, f32 or f64, moved up or down by this relative amount, at random.
Tensor moved_by(double share, const Tensor& x, std::uint64_t seed);

// The floating ones among them, converted: rounded to f32 and then widened to f64 they are the same
// numbers in two types.
std::vector<Tensor> in_type(DType type, const std::vector<Tensor>& inputs);
inline std::vector<Tensor> in_f32(const std::vector<Tensor>& inputs) {
  return in_type(DType::f32, inputs);
}
inline std::vector<Tensor> in_f64(const std::vector<Tensor>& inputs) {
  return in_type(DType::f64, inputs);
}

// Integers from 0 to `bound` - 1.
Tensor random_integers(const Shape& shape, i64 bound, std::uint64_t seed);

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
