#include "tests/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/tape.h"
#include "runtime/cuda/device.h"
#include "runtime/random.h"

namespace weft {
namespace {

Device tested;

}  // namespace

Device tested_device() { return tested; }
void set_tested_device(Device device) { tested = device; }

bool tested_is_emulated() {
  return tested.type == DeviceType::cuda && cuda_devices().all.at(0).emulated;
}

bool few_on_device() { return tested_is_emulated() && !all_wanted(); }

std::vector<Tensor> on_device(const std::vector<Tensor>& tensors, Device device) {
  std::vector<Tensor> moved;
  for (const Tensor& x : tensors) moved.push_back(x.defined() ? x.to(device) : x);
  return moved;
}

double relative_error(const Tensor& got, const Tensor& wanted) {
  if (!got.defined() || !wanted.defined() || got.shape() != wanted.shape()) {
    return std::numeric_limits<double>::infinity();
  }
  const std::vector<double> a = got.to(DType::f64).to_vector<double>();
  const std::vector<double> b = wanted.to(DType::f64).to_vector<double>();
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  if (size == 0) return difference == 0 ? 0 : std::numeric_limits<double>::infinity();
  return std::sqrt(difference / size);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor left = a.packed().to(Device{}), right = b.packed().to(Device{});
  return std::memcmp(left.bytes(), right.bytes(), left.byte_count()) == 0;
}

namespace {

double distance(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to(DType::f64).to_vector<double>();
  const std::vector<double> y = b.to(DType::f64).to_vector<double>();
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(squares);
}
double norm(const Tensor& x) { return distance(x, Tensor::zeros(x.shape(), x.dtype())); }

// Whether a gradient of this norm is what rounding leaves of 0.
bool is_rounding(double size, double largest) { return size < 1e-10 * largest; }

double largest_gradient(const Run& run) {
  double largest = 0;
  for (const Tensor& gradient : run.gradients) {
    if (gradient.defined()) largest = std::max(largest, norm(gradient));
  }
  return largest;
}

}  // namespace

bool vanishes(const Run& run, std::size_t i) {
  return is_rounding(norm(run.gradients[i]), largest_gradient(run));
}

std::vector<double> gradient_errors(const Run& got, const Run& wanted) {
  REQUIRE(got.gradients.size() == wanted.gradients.size());
  const double largest = largest_gradient(wanted);
  std::vector<double> errors;
  for (std::size_t i = 0; i < wanted.gradients.size(); ++i) {
    const Tensor &gradient = wanted.gradients[i], &found = got.gradients[i];
    REQUIRE(found.defined() == gradient.defined());
    if (!gradient.defined()) continue;
    REQUIRE(found.shape() == gradient.shape());
    const double own = norm(gradient);
    const double size = std::max(own, largest / (is_rounding(own, largest) ? 10 : 100));
    errors.push_back(size > 0 ? distance(found, gradient) / size : relative_error(found, gradient));
  }
  return errors;
}

void check_same_bits(const Run& got, const Run& wanted) {
  REQUIRE(got.outputs.size() == wanted.outputs.size());
  REQUIRE(got.gradients.size() == wanted.gradients.size());
  for (std::size_t i = 0; i < wanted.outputs.size(); ++i) {
    CHECK(same_bits(got.outputs[i], wanted.outputs[i]));
  }
  for (std::size_t i = 0; i < wanted.gradients.size(); ++i) {
    CHECK(got.gradients[i].defined() == wanted.gradients[i].defined());
    if (got.gradients[i].defined()) CHECK(same_bits(got.gradients[i], wanted.gradients[i]));
  }
}

void check_close(const Run& got, const Run& wanted, double forward, double backward,
                 const std::function<Run()>& plain) {
  REQUIRE(got.outputs.size() == wanted.outputs.size());
  for (std::size_t i = 0; i < got.outputs.size(); ++i) {
    CHECK(relative_error(got.outputs[i], wanted.outputs[i]) <= forward);
  }
  const std::vector<double> errors = gradient_errors(got, wanted);
  const bool close = std::ranges::all_of(errors, [&](double error) { return error <= backward; });
  const std::vector<double> others =
      close || !plain ? std::vector<double>(errors.size()) : gradient_errors(plain(), wanted);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    CAPTURE(i);
    CHECK(errors[i] <= std::max(backward, 3 * others[i]));
  }
}

GradientError tested_gradients(const Differentiable& f, const std::vector<Tensor>& inputs,
                               std::uint64_t seed, double step, i64 elements) {
  if (few_wanted()) elements = std::min<i64>(elements, sanitized ? 2 : 4);
  return gradcheck(f, on_device(inputs), seed, step, elements);
}

namespace {

// A run with the cotangents that `cotangent_of` returns for the outputs, in their order.
template <class F>
Run run_with(const F& cotangent_of, const Differentiable& f, const std::vector<Tensor>& inputs,
             Device device) {
  std::vector<Variable> leaves;
  for (const Tensor& input : on_device(inputs, device)) {
    leaves.push_back(is_floating(input.dtype()) ? Variable::leaf(input) : Variable(input));
  }
  Run result;
  Tape tape;
  const std::vector<Variable> outputs = f(leaves);
  std::vector<Tensor> cotangents;
  for (const Variable& output : outputs) {
    result.outputs.push_back(output.value().to(Device{}));
    cotangents.push_back(cotangent_of(output.value()).to(output.value().device()));
  }
  tape.backward(outputs, cotangents);
  for (const Variable& leaf : leaves) {
    const Tensor gradient = leaf.gradient();
    result.gradients.push_back(gradient.defined() ? gradient.to(Device{}) : gradient);
  }
  return result;
}

}  // namespace

Run run(const Differentiable& f, const std::vector<Tensor>& inputs, std::uint64_t seed,
        Device device, DType cotangents) {
  const auto random = [&](const Tensor& output) {
    const Tensor weight = random_uniform(output.shape(), DType::f32, seed++, -1, 1);
    return weight.to(cotangents).to(output.dtype());
  };
  return run_with(random, f, inputs, device);
}

Run run_for(const Tensor& dout, const Differentiable& f, const std::vector<Tensor>& inputs,
            Device device) {
  return run_with([&](const Tensor&) { return dout; }, f, inputs, device);
}

std::vector<Tensor> Run::all() const {
  std::vector<Tensor> tensors = outputs;
  tensors.insert(tensors.end(), gradients.begin(), gradients.end());
  return tensors;
}

Tensor scattered(const Tensor& x) {
  const int rank = x.rank();
  Shape wide = x.shape();
  if (rank >= 2) std::swap(wide[rank - 2], wide[rank - 1]);
  const Shape inner = wide;
  for (int axis = 0; axis < rank; ++axis) ++wide[axis];
  wide.push_back(2);
  // The gaps hold random numbers: a kernel that ignores strides reads them.
  Tensor view = random_normal(wide, DType::f64, 99).to(x.dtype()).to(tested_device());
  view = view.slice(-1, 1, 2);
  for (int axis = 0; axis < rank; ++axis) view = view.slice(axis, 1, wide[axis]);
  view = view.reshape(inner);
  if (rank >= 2) view = view.transpose(-2, -1);
  view.copy_from(x);
  return view;
}

Tensor moved_by(double share, const Tensor& x, std::uint64_t seed) {
  const Tensor way = random_uniform(x.shape(), DType::f64, seed, -1, 1);
  const Tensor moved = x.to(DType::f64).clone();
  for (i64 i = 0; i < x.count(); ++i) {
    moved.data<double>()[i] *= 1 + std::copysign(share, way.data<double>()[i]);
  }
  return moved.to(x.dtype());
}

std::vector<Tensor> in_type(DType type, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> converted;
  for (const Tensor& x : inputs) converted.push_back(is_floating(x.dtype()) ? x.to(type) : x);
  return converted;
}

Tensor random_integers(const Shape& shape, i64 bound, std::uint64_t seed) {
  std::vector<i64> values(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t word = RandomKey{seed, 0, 0}.words(i).word[0];
    values[i] = below(word, static_cast<std::uint32_t>(bound));
  }
  return Tensor::from(values, shape);
}

}  // namespace weft
