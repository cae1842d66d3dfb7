#include "apps/training/anomaly.h"

#include <cmath>

#include <fmt/core.h>

#include "nn/checkpoint.h"

namespace weft {
namespace {

// "3 of its 8 values, the first of them, nan, at 5", for a tensor with values that are not finite,
// on the CPU.
std::string values_not_finite(const Tensor& tensor) {
  const auto found = [&]<class T>(const std::vector<T>& values) {
    std::size_t count = 0, first = 0;
    for (std::size_t i = values.size(); i-- > 0;) {
      if (std::isfinite(static_cast<double>(values[i]))) continue;
      ++count;
      first = i;
    }
    return fmt::format("{} of its {} values, the first of them, {}, at {}", count, values.size(),
                       static_cast<double>(values[first]), first);
  };
  return tensor.dtype() == DType::f64 ? found(tensor.to_vector<double>())
                                      : found(tensor.to(DType::f32).to_vector<float>());
}

}  // namespace

AnomalyWatch::AnomalyWatch(const std::vector<NamedParameter>& parameters, i64 step) : step_(step) {
  for (const NamedParameter& p : parameters) names_[p.variable.place().get()] = p.name;
}

void AnomalyWatch::made(const char* op, std::span<const Variable> inputs,
                        std::span<const Tensor> values) {
  ++ops_;
  for (const Variable& input : inputs) {
    const auto name = names_.find(input.place().get());
    if (name == names_.end()) continue;
    check(input.value(), fmt::format("{} (op {}): the parameter {}", op, ops_, name->second));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    check(values[i], fmt::format("{} (op {}): its output {}", op, ops_, i));
  }
}

void AnomalyWatch::gathered(const char* op, std::size_t input, const Gradient& place) {
  const auto name = names_.find(&place);
  check(place.sum(), fmt::format("{}, backward: the gradient of {}", op,
                                 name == names_.end() ? fmt::format("its input {}", input)
                                                      : "the parameter " + name->second));
}

void AnomalyWatch::check(const Tensor& tensor, const std::string& what) const {
  if (!tensor.defined()) return;
  const Tensor here = tensor.to(Device{});
  if (all_finite(here)) return;
  throw Anomaly(fmt::format("step {}: {} {} is not finite: {}", step_, what, tensor.shape(),
                            values_not_finite(here)));
}

}  // namespace weft
