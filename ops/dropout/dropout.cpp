#include "ops/dropout/dropout.h"

#include "ops/dropout/kernels.h"
#include "runtime/dispatch.h"

namespace weft {

void check_dropout_rate(const char* op, double rate) {
  require(rate >= 0 && std::lround(rate * 65536) < 65536,
          "{}: the dropout rate must be in [0, 1), in steps of 1/65536, got {}", op, rate);
}

i64 rows_of_example(const Tensor& x) {
  return x.rank() < 2 || x.size(0) == 0 ? 0 : x.rows() / x.size(0);
}

namespace {

Tensor masked(const Tensor& x, double rate, const RandomKey& key) {
  Tensor y = Tensor::empty_like(x);
  if (x.count() == 0) return y;
  const Tensor row_major = x.packed();
  const DropoutMask mask(key, rate, x.rank() == 0 ? 1 : x.size(-1), rows_of_example(x));
  dispatch_floating(x, [&](auto device, auto type) {
    using T = decltype(type);
    DropoutKernels<decltype(device), T>::apply(device, mask, x.count(), row_major.data<T>(),
                                               y.data<T>());
  });
  return y;
}

}  // namespace

Tensor Dropout::forward(Saved&, const Tensor& x) const { return masked(x, rate, key); }

Tensor Dropout::backward(const Saved&, const Tensor& dy) const { return masked(dy, rate, key); }

Variable dropout(const Variable& x, double rate, const RandomKey& key) {
  require_real(Dropout::name, x.value());
  check_dropout_rate("dropout", rate);
  return rate == 0 ? x : apply(Dropout{rate, key}, x);
}

}  // namespace weft
