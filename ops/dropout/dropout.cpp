#include "ops/dropout/dropout.h"

#include "ops/dropout/kernels.h"
#include "ops/dropout/mask_vectors.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace weft {

void check_dropout_rate(const char* op, double rate) {
  require(rate >= 0 && std::lround(rate * 65536) < 65536,
          "{}: the dropout rate must be in [0, 1), in steps of 1/65536, got {}", op, rate);
}

namespace {

constexpr std::int64_t grain = 1 << 15;  // elements that one piece of parallel work draws

}  // namespace

template <class T>
void drop(const Cpu&, const DropoutMask& mask, std::int64_t count, const T* x, T* y) {
  const std::int64_t columns = mask.columns;
  if (columns % DropoutMask::pieces == 0) {  // the indices run on from row to row: one long row
    return parallel_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
      apply_dropout<T>(mask, 0, begin, end - begin, x + begin, y + begin);
    });
  }
  const std::int64_t rows = count / columns;
  const std::int64_t together = std::max<std::int64_t>(1, grain / columns);
  parallel_ranges(rows, together, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      apply_dropout<T>(mask, row, 0, columns, x + row * columns, y + row * columns);
    }
  });
}

namespace {

Tensor masked(const Tensor& x, double rate, const RandomKey& key) {
  Tensor y = Tensor::empty_like(x);
  if (x.count() == 0) return y;
  const Tensor row_major = x.packed();
  const DropoutMask mask(key, rate, x.rank() == 0 ? 1 : x.size(-1));
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    drop<T>(device, mask, x.count(), row_major.data<T>(), y.data<T>());
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
