#include "ops/matmul/matmul.h"

#include "runtime/dispatch.h"
#include "runtime/matmul.h"

namespace weft {

namespace {

// Whether x is broadcast along the first axis of y.
bool serves_all(const Tensor& x, const Tensor& y) { return x.rank() + 1 == y.rank(); }

Tensor for_each_item(const Tensor& x, const Tensor& of) {
  Shape shape{of.size(0)};
  for (int axis = 0; axis < x.rank(); ++axis) shape.push_back(x.size(axis));
  return x.expand(shape);
}

// Σ x_i y_i over the items along the first axis, in their order.
Tensor sum_of_products(const Tensor& x, const Tensor& y) {
  Shape shape, left, right;
  for (int axis = 1; axis < x.rank(); ++axis) left.push_back(x.size(axis));
  for (int axis = 1; axis < y.rank(); ++axis) right.push_back(y.size(axis));
  shape = left;
  shape[shape.rank() - 1] = right.back();
  if (x.size(0) == 0) return Tensor::zeros(shape, x.dtype(), x.device());
  const Tensor sum = Tensor::empty(shape, x.dtype(), x.device());
  for (i64 i = 0; i < x.size(0); ++i) {
    matmul_into(x.slice(0, i, i + 1).reshape(left), y.slice(0, i, i + 1).reshape(right), sum,
                i > 0);
  }
  return sum;
}

Tensor turned(const Tensor& x) { return x.transpose(-2, -1); }

}  // namespace

Tensor MatrixProduct::forward(Saved& saved, const Tensor& a, const Tensor& b) const {
  require_real(name, a);
  saved = {a, b};
  if (a.rank() >= 2 && serves_all(a, b)) return matmul(for_each_item(a, b), b);
  if (b.rank() > 2 && serves_all(b, a)) return matmul(a, for_each_item(b, a));
  return matmul(a, b);
}

std::array<Tensor, 2> MatrixProduct::backward(const Saved& saved, Wants wants,
                                              const Tensor& dc) const {
  const auto& [a, b] = saved;
  Tensor da, db;
  if (wants[0] && serves_all(a, b)) {
    // In the memory order of a.
    da =
        a.stride(-2) == 1 ? turned(sum_of_products(b, turned(dc))) : sum_of_products(dc, turned(b));
  } else if (wants[0]) {
    da = matmul(dc, turned(b.rank() > 2 && serves_all(b, a) ? for_each_item(b, a) : b));
  }
  if (!wants[1]) return {da, db};
  if (b.rank() == 2 && a.rank() > 2) {
    db = matmul(as_rows(a.packed()).transpose(0, 1), as_rows(dc.packed()));
  } else if (serves_all(b, a)) {
    db = sum_of_products(turned(a), dc);
  } else {
    db = matmul(turned(serves_all(a, b) ? for_each_item(a, b) : a), dc);
  }
  return {da, db};
}

Variable matmul(const Variable& a, const Variable& b) { return apply(MatrixProduct{}, a, b); }

}  // namespace weft
