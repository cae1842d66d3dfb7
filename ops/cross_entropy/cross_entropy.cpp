#include "ops/cross_entropy/cross_entropy.h"

#include "ops/cross_entropy/kernels.h"
#include "ops/softmax/rows.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr std::int64_t grain = 1 << 14;  // logits that one piece of parallel work reads

std::int64_t rows_together(std::int64_t V) {
  return std::max<std::int64_t>(1, grain / std::max<std::int64_t>(1, V));
}

}  // namespace

template <class T>
void cross_entropy_forward(const Cpu&, std::int64_t rows, std::int64_t V, const T* logits,
                           const std::int64_t* targets, T* lse, double* nats) {
  parallel_ranges(rows, rows_together(V), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* const x = logits + row * V;
      const RowSum<T> sum = row_sum(x, V);
      if (lse != nullptr) lse[row] = static_cast<T>(sum.log_sum_exp());
      nats[row] = std::log(sum.z) + (double(sum.shift) - double(x[targets[row]]));
    }
  });
}

template <class T>
void mean_of_nats(const Cpu&, std::int64_t rows, const double* nats, T* loss) {
  *loss = static_cast<T>(simd::sum_in_f64(nats, rows) / static_cast<double>(rows));
}

template <class T>
void cross_entropy_backward(const Cpu&, std::int64_t rows, std::int64_t V, const T* logits,
                            const std::int64_t* targets, const T* lse, const T* dloss, T* dlogits) {
  const double scale = static_cast<double>(*dloss) / static_cast<double>(rows);
  parallel_ranges(rows, rows_together(V), [=](std::int64_t begin, std::int64_t end) {
    const Pack<T> factor(scale);
    for (std::int64_t row = begin; row < end; ++row) {
      const Pack<T> shift(lse[row]);
      T* const dx = dlogits + row * V;
      const auto gradient = [=](Pack<T> x) { return factor * exp(x - shift); };
      map<T>(V, dx, gradient, logits + row * V);
      dx[targets[row]] -= static_cast<T>(scale);
    }
  });
}

#define WEFT_CROSS_ENTROPY(T)                                                            \
  template void cross_entropy_forward(const Cpu&, std::int64_t, std::int64_t, const T*,  \
                                      const std::int64_t*, T*, double*);                 \
  template void mean_of_nats(const Cpu&, std::int64_t, const double*, T*);               \
  template void cross_entropy_backward(const Cpu&, std::int64_t, std::int64_t, const T*, \
                                       const std::int64_t*, const T*, const T*, T*);
WEFT_CROSS_ENTROPY(float)
WEFT_CROSS_ENTROPY(double)

namespace {

// The nats of every row, and the log-sum-exps where `lse` is defined.
Tensor forward_rows(const Tensor& logits, const Tensor& targets, const Tensor& lse) {
  const Tensor nats = Tensor::empty(targets.shape(), DType::f64, logits.device());
  dispatch(logits, [&](auto device, auto type) {
    using T = decltype(type);
    cross_entropy_forward<T>(device, targets.count(), logits.size(-1), logits.data<T>(),
                             targets.data<std::int64_t>(), lse.defined() ? lse.data<T>() : nullptr,
                             nats.data<double>());
  });
  return nats;
}

}  // namespace

Tensor cross_entropy_targets(const char* op, const Tensor& targets, const Tensor& x,
                             std::int64_t classes) {
  Shape expected;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) expected.push_back(x.size(axis));
  require(x.rank() >= 1 && targets.shape() == expected && targets.dtype() == DType::i64,
          "{}: rows {} want targets {} in i64, got {} {}", op, x.shape(), expected, targets.shape(),
          name_of(targets.dtype()));
  require(targets.device() == x.device(), "{}: the rows are on {}, the targets on {}", op,
          name_of(x.device().type), name_of(targets.device().type));
  const Tensor row_major = targets.packed();
  if (targets.device() != Device{}) return row_major;
  const std::int64_t* const ids = row_major.data<std::int64_t>();
  for (std::int64_t row = 0; row < targets.count(); ++row) {
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
           Tensor::empty(targets.shape(), logits.dtype(), logits.device())};
  const Tensor nats = forward_rows(saved.logits, classes, saved.lse);
  const Tensor loss = Tensor::empty({}, logits.dtype(), logits.device());
  dispatch(logits, [&](auto device, auto type) {
    using T = decltype(type);
    mean_of_nats<T>(device, nats.count(), nats.data<double>(), loss.data<T>());
  });
  return loss;
}

std::array<Tensor, 2> CrossEntropy::backward(const Saved& saved, const Tensor& dloss) const {
  const Tensor &logits = saved.logits, &targets = saved.targets, &lse = saved.lse;
  const Tensor dlogits = Tensor::empty_like(logits);
  dispatch(logits, [&](auto device, auto type) {
    using T = decltype(type);
    cross_entropy_backward<T>(device, targets.count(), logits.size(-1), logits.data<T>(),
                              targets.data<std::int64_t>(), lse.data<T>(), dloss.data<T>(),
                              dlogits.data<T>());
  });
  return {dlogits, Tensor{}};
}

Variable cross_entropy(const Variable& logits, const Tensor& targets) {
  return apply(CrossEntropy{}, logits, Variable(targets));
}

Tensor cross_entropy_rows(const Tensor& logits, const Tensor& targets) {
  require_real(CrossEntropy::name, logits);
  const Tensor classes =
      cross_entropy_targets(CrossEntropy::name, targets, logits, logits.size(-1));
  return forward_rows(logits.packed(), classes, Tensor{});
}

}  // namespace weft
