#include "ops/cross_entropy/cross_entropy.h"

#include "ops/cross_entropy/kernels.h"
#include "runtime/dispatch.h"

namespace weft {

namespace {

// The nats of every row, and its sums if `sums` is defined.
Tensor forward_rows(const Tensor& logits, const Tensor& targets, const Tensor& sums) {
  const Tensor nats = Tensor::empty(targets.shape(), DType::f64, logits.device());
  dispatch(logits, [&](auto device, auto type) {
    using T = decltype(type);
    CrossEntropyKernels<decltype(device), T>::forward(
        device, targets.count(), logits.size(-1), logits.data<T>(), targets.data<i64>(),
        sums.defined() ? sums.data<T>() : nullptr, nats.data<double>());
  });
  return nats;
}

}  // namespace

Tensor cross_entropy_targets(const char* op, const Tensor& targets, const Tensor& x, i64 classes) {
  Shape expected;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) expected.push_back(x.size(axis));
  require(x.rank() >= 1 && targets.shape() == expected && targets.dtype() == DType::i64,
          "{}: rows {} need targets {} in i64, got {} {}", op, x.shape(), expected, targets.shape(),
          name_of(targets.dtype()));
  require(targets.device() == x.device(), "{}: the rows are on {}, the targets on {}", op,
          name_of(x.device().type), name_of(targets.device().type));
  const Tensor row_major = targets.packed();
  if (targets.device() != Device{}) return row_major;
  const i64* const ids = row_major.data<i64>();
  for (i64 row = 0; row < targets.count(); ++row) {
    require(0 <= ids[row] && ids[row] < classes,
            "{}: the target at position {} of {} is {}; there are {} classes", op, row,
            targets.shape(), ids[row], classes);
  }
  return row_major;
}

Tensor CrossEntropy::forward(Saved& saved, const Tensor& logits, const Tensor& targets) const {
  require(targets.count() > 0, "cross_entropy: there are no targets in {}", targets.shape());
  require_real(name, logits);
  const Tensor classes = cross_entropy_targets(name, targets, logits, logits.size(-1));
  saved = {logits.packed(), classes,
           Tensor::empty({2, targets.count()}, logits.dtype(), logits.device())};
  const Tensor nats = forward_rows(saved.logits, classes, saved.sums);
  const Tensor loss = Tensor::empty({}, logits.dtype(), logits.device());
  dispatch(logits, [&](auto device, auto type) {
    using T = decltype(type);
    CrossEntropyKernels<decltype(device), T>::mean(device, nats.count(), nats.data<double>(),
                                                   loss.data<T>());
  });
  return loss;
}

std::array<Tensor, 2> CrossEntropy::backward(const Saved& saved, const Tensor& dloss) const {
  const Tensor &logits = saved.logits, &targets = saved.targets;
  const Tensor dlogits = Tensor::empty_like(logits);
  dispatch(logits, [&](auto device, auto type) {
    using T = decltype(type);
    CrossEntropyKernels<decltype(device), T>::backward(
        device, targets.count(), logits.size(-1), logits.data<T>(), targets.data<i64>(),
        saved.sums.data<T>(), dloss.data<T>(), dlogits.data<T>());
  });
  return {dlogits, Tensor{}};
}

Variable cross_entropy(const Variable& logits, const Tensor& targets) {
  return apply(CrossEntropy{}, logits, Variable(targets));
}

Tensor cross_entropy_rows(const Tensor& given, const Tensor& targets) {
  const Tensor logits = given.dtype() == DType::bf16 ? given.to(DType::f32) : given;
  require_real(CrossEntropy::name, logits);
  const Tensor classes =
      cross_entropy_targets(CrossEntropy::name, targets, logits, logits.size(-1));
  return forward_rows(logits.packed(), classes, Tensor{});
}

}  // namespace weft
