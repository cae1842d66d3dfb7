// Variable: a tensor and the shared place where its gradient gathers.
#pragma once

#include <memory>
#include <utility>

#include "runtime/tensor.h"

namespace weft {

// The place where the gradient of one value gathers. accumulate() is the only code in the project
// that adds gradients.
class Gradient {
 public:
  // Adds `value`. The first one is kept as it is; a later one is added in place only where nobody
  // else holds the bytes, since an op may hand the same tensor to two inputs.
  void accumulate(const Tensor& value);

  const Tensor& sum() const { return sum_; }  // undefined while nothing came
  Tensor take() { return std::exchange(sum_, {}); }
  void clear() { sum_ = {}; }

 private:
  friend class Tape;
  Tensor sum_;
  int uses_ = 0;  // recorded uses whose backward has not run yet
};

class Variable {
 public:
  Variable() = default;
  Variable(Tensor value) : value_(std::move(value)) {}  // a constant: it wants no gradient
  Variable(Tensor value, std::shared_ptr<Gradient> place)
      : value_(std::move(value)), place_(std::move(place)) {}
  // A leaf that wants a gradient: a parameter, or an input under a gradient check.
  static Variable leaf(Tensor value) { return {std::move(value), std::make_shared<Gradient>()}; }

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  i64 size(int axis) const { return value_.size(axis); }

  bool wants_gradient() const { return place_ != nullptr; }
  const std::shared_ptr<Gradient>& place() const { return place_; }
  // What has gathered so far; undefined where nothing came or nothing is wanted.
  Tensor gradient() const { return place_ ? place_->sum() : Tensor{}; }
  Variable detached() const { return Variable(value_); }

 private:
  Tensor value_;
  std::shared_ptr<Gradient> place_;
};

}  // namespace weft
