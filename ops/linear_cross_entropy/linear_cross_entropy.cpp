#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include <algorithm>

#include "ops/cross_entropy/cross_entropy.h"
#include "ops/cross_entropy/kernels.h"
#include "ops/pointwise/pointwise.h"
#include "runtime/dispatch.h"
#include "runtime/matmul.h"

namespace weft {
namespace {

constexpr std::int64_t logits_at_a_time = 1 << 22;  // 16 MiB in f32: they stay in the last cache

void check_shapes(const char* op, const Tensor& x, const Tensor& table) {
  require_real(op, x);
  require(table.rank() == 2 && x.rank() >= 1 && x.size(-1) == table.size(1) &&
              x.dtype() == table.dtype(),
          "{}: wanted x [.., d] and a table [V, d] of one type, got {} {} and {} {}", op, x.shape(),
          name_of(x.dtype()), table.shape(), name_of(table.dtype()));
}

// Calls piece(begin, end, logits) for runs of rows of x, whose logits lie in memory that the next
// piece takes.
template <class F>
void each_piece(const Tensor& x, const Tensor& table, const F& piece) {
  const std::int64_t rows = x.size(0), V = table.size(0);
  const std::int64_t together =
      std::min(rows, std::max<std::int64_t>(1, logits_at_a_time / std::max<std::int64_t>(1, V)));
  const Tensor room = Tensor::empty({together, V}, x.dtype(), x.device());
  const Tensor turned = table.transpose(0, 1).packed();  // products with it are a fifth faster
  for (std::int64_t begin = 0; begin < rows; begin += together) {
    const std::int64_t end = std::min(rows, begin + together);
    const Tensor logits = room.slice(0, 0, end - begin);
    matmul_into(x.slice(0, begin, end), turned, logits);
    piece(begin, end, logits);
  }
}

}  // namespace

Tensor LinearCrossEntropy::forward(Saved& saved, const Tensor& x, const Tensor& table,
                                   const Tensor& targets) const {
  check_shapes(name, x, table);
  const Tensor classes =
      cross_entropy_targets(name, targets, x, table.size(0)).reshape({targets.count()});
  const Tensor rows = as_rows(x.packed());
  const std::int64_t R = rows.size(0), V = table.size(0);
  require(R > 0, "{}: there are no targets in {}", name, targets.shape());
  const bool recorded = Tape::current() != nullptr;
  if (recorded) saved = {Tensor::empty_like(rows), Tensor::empty_like(table)};
  const Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  const Tensor nats = Tensor::empty({R}, DType::f64, x.device());
  const Tensor lse = Tensor::empty({R}, x.dtype(), x.device());
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    each_piece(rows, table, [&](std::int64_t begin, std::int64_t end, const Tensor& logits) {
      T *const z = logits.data<T>(), *const sums = lse.data<T>() + begin;
      const std::int64_t* const t = classes.data<std::int64_t>() + begin;
      cross_entropy_forward<T>(device, end - begin, V, z, t, sums, nats.data<double>() + begin);
      if (!recorded) return;
      const double share = static_cast<double>(end - begin) / static_cast<double>(R);
      const Tensor dmean = Tensor::full({}, share, x.dtype(), x.device());
      cross_entropy_backward<T>(device, end - begin, V, z, t, sums, dmean.data<T>(), z);
      matmul_into(logits, table, saved.dx.slice(0, begin, end));
      matmul_into(logits.transpose(0, 1), rows.slice(0, begin, end), saved.dtable, begin > 0);
    });
    mean_of_nats<T>(device, R, nats.data<double>(), loss.data<T>());
  });
  if (recorded) saved.dx = saved.dx.reshape(x.shape());
  return loss;
}

std::array<Tensor, 3> LinearCrossEntropy::backward(const Saved& saved, Wants wants,
                                                   const Tensor& dloss) const {
  const Tape::Pause pause;
  const auto times = [&](bool wanted, const Tensor& gradient) {
    return wanted ? mul(Variable(gradient), Variable(dloss)).value() : Tensor{};
  };
  return {times(wants[0], saved.dx), times(wants[1], saved.dtable), Tensor{}};
}

Variable linear_cross_entropy(const Variable& x, const Variable& table, const Tensor& targets) {
  return apply(LinearCrossEntropy{}, x, table, Variable(targets));
}

Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& table, const Tensor& targets) {
  check_shapes(LinearCrossEntropy::name, x, table);
  const Tensor classes = cross_entropy_targets(LinearCrossEntropy::name, targets, x, table.size(0))
                             .reshape({targets.count()});
  const Tensor rows = as_rows(x.packed());
  const Tensor nats = Tensor::empty({rows.size(0)}, DType::f64, x.device());
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    each_piece(rows, table, [&](std::int64_t begin, std::int64_t end, const Tensor& logits) {
      cross_entropy_forward<T>(device, end - begin, table.size(0), logits.data<T>(),
                               classes.data<std::int64_t>() + begin, nullptr,
                               nats.data<double>() + begin);
    });
  });
  return nats.reshape(targets.shape());
}

}  // namespace weft
