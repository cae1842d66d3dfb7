#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include "ops/cross_entropy/cross_entropy.h"
#include "ops/cross_entropy/kernels.h"
#include "ops/pointwise/pointwise.h"
#include "runtime/dispatch.h"
#include "runtime/matmul.h"

namespace weft {
namespace {

void check_shapes(const char* op, const Tensor& x, const Tensor& table) {
  require_real(op, x);
  require(table.rank() == 2 && x.rank() >= 1 && x.size(-1) == table.size(1) &&
              (x.dtype() == table.dtype() || table.dtype() == accumulator_of(x.dtype())),
          "{}: wanted x [.., d] and a table [V, d] of one type, got {} {} and {} {}", op, x.shape(),
          name_of(x.dtype()), table.shape(), name_of(table.dtype()));
}

void find_nats(const Tensor& rows, const Tensor& table, const Tensor& classes, const Tensor& nats,
               const LinearCrossEntropy::Saved& gradients) {
  const Tensor read = compute_copy(table.packed(), rows.dtype());
  dispatch_floating(rows, [&](auto device, auto type) {
    using Kernels = LinearCrossEntropyKernels<decltype(device), decltype(type)>;
    Kernels::forward(device, rows, read, classes, nats, gradients);
  });
}

}  // namespace

Tensor LinearCrossEntropy::forward(Saved& saved, const Tensor& x, const Tensor& table,
                                   const Tensor& targets) const {
  check_shapes(name, x, table);
  const Tensor classes =
      cross_entropy_targets(name, targets, x, table.size(0)).reshape({targets.count()});
  const Tensor rows = as_rows(x.packed());
  const i64 R = rows.size(0);
  require(R > 0, "{}: there are no targets in {}", name, targets.shape());
  const DType sums = accumulator_of(x.dtype());
  if (Tape::current() != nullptr) {
    saved = {Tensor::empty(rows.shape(), sums, x.device()),
             Tensor::empty(table.shape(), sums, x.device()), x.dtype(), table.dtype()};
  }
  const Tensor nats = Tensor::empty({R}, DType::f64, x.device());
  find_nats(rows, table, classes, nats, saved);
  const Tensor loss = Tensor::empty({}, sums, x.device());
  dispatch(loss, [&](auto device, auto type) {
    using T = decltype(type);
    CrossEntropyKernels<decltype(device), T>::mean(device, R, nats.data<double>(), loss.data<T>());
  });
  if (saved.dx.defined()) saved.dx = saved.dx.reshape(x.shape());
  return loss;
}

std::array<Tensor, 3> LinearCrossEntropy::backward(const Saved& saved, Wants wants,
                                                   const Tensor& dloss) const {
  const Tape::Pause pause;
  const auto times = [&](bool wanted, const Tensor& gradient, DType type) {
    return wanted ? mul(Variable(gradient), Variable(dloss)).value().to(type) : Tensor{};
  };
  return {times(wants[0], saved.dx, saved.type_of_x),
          times(wants[1], saved.dtable, saved.type_of_table), Tensor{}};
}

Variable linear_cross_entropy(const Variable& x, const Variable& table, const Tensor& targets) {
  return apply(LinearCrossEntropy{}, x, table, Variable(targets));
}

Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& table, const Tensor& targets) {
  check_shapes(LinearCrossEntropy::name, x, table);
  const Tensor classes = cross_entropy_targets(LinearCrossEntropy::name, targets, x, table.size(0))
                             .reshape({targets.count()});
  const Tensor nats = Tensor::empty({classes.count()}, DType::f64, x.device());
  find_nats(as_rows(x.packed()), table, classes, nats, {});
  return nats.reshape(targets.shape());
}

}  // namespace weft
