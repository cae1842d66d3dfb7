#include "ops/matmul/matmul.h"

#include "runtime/dispatch.h"
#include "runtime/matmul.h"

namespace weft {
namespace {

Tensor flattened(const Tensor& x) {  // [.., n] → [rows, n]
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) rows *= x.size(axis);
  return x.packed().reshape({rows, x.size(-1)});
}

}  // namespace

Tensor MatrixProduct::forward(Saved& saved, const Tensor& a, const Tensor& b) const {
  require_real(name, a);
  saved = {a, b};
  return matmul(a, b);
}

std::array<Tensor, 2> MatrixProduct::backward(const Saved& saved, Wants wants,
                                              const Tensor& dc) const {
  const auto& [a, b] = saved;
  Tensor da, db;
  if (wants[0]) da = matmul(dc, b.transpose(-2, -1));
  if (wants[1] && b.rank() == a.rank()) db = matmul(a.transpose(-2, -1), dc);
  if (wants[1] && b.rank() < a.rank()) db = matmul(flattened(a).transpose(0, 1), flattened(dc));
  return {da, db};
}

Variable matmul(const Variable& a, const Variable& b) { return apply(MatrixProduct{}, a, b); }

}  // namespace weft
