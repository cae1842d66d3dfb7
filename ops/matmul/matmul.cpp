#include "ops/matmul/matmul.h"

#include "runtime/dispatch.h"
#include "runtime/matmul.h"

namespace weft {

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
  if (wants[1] && b.rank() < a.rank()) {
    db = matmul(as_rows(a.packed()).transpose(0, 1), as_rows(dc.packed()));
  }
  return {da, db};
}

Variable matmul(const Variable& a, const Variable& b) { return apply(MatrixProduct{}, a, b); }

}  // namespace weft
