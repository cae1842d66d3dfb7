#include "ops/cast/cast.h"

namespace weft {

Tensor Cast::forward(Saved& saved, const Tensor& x) const {
  saved.from = x.dtype();
  return x.to(dtype);
}

Tensor Cast::backward(const Saved& saved, const Tensor& dy) const { return dy.to(saved.from); }

Variable cast(const Variable& x, DType dtype) {
  const DType from = x.value().dtype();
  require(is_floating(from) && is_floating(dtype),
          "cast: wanted f32, f64 or bf16 on both sides, got {} {} to {}", name_of(from), x.shape(),
          name_of(dtype));
  return from == dtype ? x : apply(Cast{dtype}, x);
}

}  // namespace weft
