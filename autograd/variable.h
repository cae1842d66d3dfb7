// Variable: a tensor and its shared gradient.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/tensor.h"

namespace weft {

// The accumulated gradient of one value. accumulate() is the only code in the project that adds
// gradients.
class Gradient {
 public:
  // Of `value`, whose bytes it does not keep.
  explicit Gradient(const Tensor& value)
      : shape_(value.shape()), dtype_(value.dtype()), device_(value.device()) {}

  // Adds `gradient`, which `op` made and which has the shape, type and device of the value; throws
  // if it has not. The first one is kept without a copy; a later one is added in place only if no
  // other tensor shares the bytes, since an op may return the same tensor for two inputs.
  void accumulate(const Tensor& gradient, const char* op = "gradient");

  const Shape& shape() const { return shape_; }
  Tensor zeros() const { return Tensor::zeros(shape_, dtype_, device_); }
  const Tensor& sum() const { return sum_; }  // undefined before the first value
  Tensor take() { return std::exchange(sum_, {}); }
  void clear() { sum_ = {}; }

 private:
  friend class Tape;
  Shape shape_;
  DType dtype_;
  Device device_;
  Tensor sum_;
  std::uint64_t tape_ = 0;  // the number of the tape that recorded the value; 0: none, a leaf
  int uses_ = 0;  // recorded uses whose backward has not run yet
};

class Variable {
 public:
  Variable() = default;
  Variable(Tensor value) : value_(std::move(value)) {}  // a constant: it wants no gradient
  Variable(Tensor value, std::shared_ptr<Gradient> place)
      : value_(std::move(value)), place_(std::move(place)) {}
  // A leaf that wants a gradient: a parameter, or an input in a gradient check.
  static Variable leaf(Tensor value) {
    auto place = std::make_shared<Gradient>(value);
    return {std::move(value), std::move(place)};
  }

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  i64 size(int axis) const { return value_.size(axis); }

  bool wants_gradient() const { return place_ != nullptr; }
  const std::shared_ptr<Gradient>& place() const { return place_; }
  // The gradient accumulated so far; undefined if there is none, or none is wanted.
  Tensor gradient() const { return place_ ? place_->sum() : Tensor{}; }
  Variable detached() const { return Variable(value_); }

 private:
  Tensor value_;
  std::shared_ptr<Gradient> place_;
};

}  // namespace weft
