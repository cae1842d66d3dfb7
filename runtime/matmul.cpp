#include "runtime/matmul.h"

#include <atomic>

#include "runtime/dispatch.h"
#include "runtime/gemm.h"

namespace weft {

void matmul_into(const Tensor& a, const Tensor& b, const Tensor& c, bool add) {
  require(a.rank() >= 2 && b.rank() >= 2 && a.size(-1) == b.size(-2),
          "matmul: the last axis of {} and the last but one of {} must be equal", a.shape(),
          b.shape());
  const bool widened = a.dtype() == DType::bf16 && c.dtype() == DType::f32;
  require(a.dtype() == b.dtype() && (a.dtype() == c.dtype() || widened),
          "matmul: wanted one element type, got {} × {} → {}", name_of(a.dtype()),
          name_of(b.dtype()), name_of(c.dtype()));
  Shape expected = a.shape();
  expected[a.rank() - 1] = b.size(-1);
  bool batched = b.rank() == a.rank();
  for (int axis = 0; batched && axis < a.rank() - 2; ++axis) batched = a.size(axis) == b.size(axis);
  require(b.rank() == 2 || batched, "matmul: the batches of {} and {} differ", a.shape(),
          b.shape());
  require(c.shape() == expected, "matmul: {} × {} gives {}, the target is {}", a.shape(), b.shape(),
          expected, c.shape());
  require(c.size(-1) == 1 || c.stride(-1) == 1, "matmul: the rows of the target {} have gaps",
          c.shape());
  require(a.device() == b.device() && a.device() == c.device(),
          "matmul: {}, {} and {} are on different devices", a.shape(), b.shape(), c.shape());
  dispatch_floating(a, [&](auto device, auto type) {
    MatmulKernels<decltype(device), decltype(type)>::batched(device, a, b, c, add);
  });
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  require(a.rank() >= 2 && b.rank() >= 2, "matmul: wanted matrices, got {} and {}", a.shape(),
          b.shape());
  Shape shape = a.shape();
  shape[a.rank() - 1] = b.size(-1);
  Tensor c = Tensor::empty(shape, a.dtype(), a.device());
  matmul_into(a, b, c);
  return c;
}

std::string matmul_library() {
  return fmt::format("f32 {}, f64 {}, bf16 {}", gemm_f32_library(), gemm_f64_library(),
                     gemm_bf16_library());
}

namespace {
std::atomic<bool> in_tf32 = false;
}

bool products_in_tf32() { return in_tf32; }
void set_products_in_tf32(bool wanted) { in_tf32 = wanted; }

}  // namespace weft
