// Operations on a CUDA device, real or emulated.
#include <array>
#include <cmath>

#include "autograd/tape.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "runtime/arithmetic.h"
#include "runtime/matmul.h"
#include "tests/check.h"
#include "tests/cuda_there.h"
#include "tests/ops/cases.h"

namespace weft {
namespace {

constexpr Device cuda{DeviceType::cuda, 0};

TEST_SUITE("ops") {

TEST_CASE("device: tensors on two devices in one operation") {
  if (!cuda_is_there()) return;
  const Tensor x = random_normal({3, 5}, DType::f32, 1);
  CHECK_ERROR(add(x.to(cuda), x),
              "add: wanted tensors on one device, got [3,5] on cuda and [3,5] on cpu");
  CHECK_ERROR(matmul(x.to(cuda), x.transpose(0, 1)), "are on different devices");
}

TEST_CASE("device: every op with one of its tensors on another device") {
  if (!cuda_is_there()) return;
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.name);
    for (std::size_t i = 0; i < c.inputs.size() && c.inputs.size() > 1; ++i) {
      const std::vector<Tensor> moved = on_device(c.inputs, cuda);
      std::vector<Variable> inputs(moved.begin(), moved.end());
      inputs[i] = c.inputs[i];
      CHECK_ERROR(c.f(inputs), "device");
    }
  }
}

TEST_CASE("device: products of any strides and batches are those of the CPU") {
  if (!cuda_is_there()) return;
  const Shape shapes[][2] = {{{3, 4}, {4, 5}},          {{1, 4}, {4, 1}},
                             {{6, 2, 3, 4}, {6, 2, 4, 5}}, {{6, 2, 3, 4}, {4, 5}},
                             {{2, 0, 4}, {2, 4, 3}},    {{2, 3, 0}, {2, 0, 3}}};
  for (const auto& [left, right] : shapes) {
    const Tensor a = random_normal(left, DType::f64, 1), b = random_normal(right, DType::f64, 2);
    const Tensor wanted = matmul(a, b), far_a = a.to(cuda), far_b = b.to(cuda);
    const auto turned = [](const Tensor& x) {
      return x.transpose(-1, -2).clone().transpose(-1, -2);
    };
    const auto gaps = [](const Tensor& x) {
      Shape wide = x.shape();
      wide.push_back(3);
      const Tensor view = Tensor::zeros(wide, x.dtype(), cuda).slice(-1, 1, 2).reshape(x.shape());
      view.copy_from(x);
      return view;
    };
    for (const Tensor& x : {far_a, turned(far_a), gaps(far_a)}) {
      for (const Tensor& y : {far_b, turned(far_b), gaps(far_b)}) {
        CHECK(relative_error(matmul(x, y), wanted) <= tolerance::forward_f64);
        const Tensor twice = matmul(x, y);
        matmul_into(x, y, twice, true);
        CHECK(relative_error(twice, added(wanted, wanted)) <= tolerance::forward_f64);
      }
    }
  }
}

TEST_CASE("device: views and their gradients stay on the device") {
  if (!cuda_is_there()) return;
  const Tensor x = random_normal({3, 4, 5}, DType::f64, 1),
               y = random_normal({3, 2, 5}, DType::f64, 2);
  const Tensor cotangent = random_normal({5, 6, 3}, DType::f64, 3);
  const auto walk = [&](Device device) {
    const Variable a = Variable::leaf(x.to(device)), b = Variable::leaf(y.to(device));
    Tape tape;
    const Variable whole = concatenate(std::array{a, b}, 1);
    const Variable turned = transpose(whole, 0, 2);
    tape.backward(std::array{turned, turned},
                  std::array{cotangent.to(device), cotangent.to(device)});
    CHECK(a.gradient().device() == device);
    return std::array{turned.value().to(Device{}), a.gradient().to(Device{}),
                      b.gradient().to(Device{})};
  };
  const auto here = walk({}), there = walk(cuda);
  for (std::size_t i = 0; i < 3; ++i) CHECK(same_bits(there[i], here[i]));
}

TEST_CASE("device: ids and targets outside of the table give NaN, and touch nothing else") {
  if (!cuda_is_there()) return;
  const auto on = [&](const Tensor& x) { return x.to(cuda); };
  const Tensor table = random_normal({4, 3}, DType::f64, 1),
               dy = random_normal({5, 3}, DType::f64, 2);
  const Tensor ids = Tensor::from(std::vector<i64>{2, -1, 0, 4, 2}, {5});
  const Variable leaf = Variable::leaf(on(table));
  const Variable logits = Variable::leaf(on(random_normal({3, 4}, DType::f64, 3)));
  const Tensor targets = Tensor::from(std::vector<i64>{1, 7, 0}, {3});
  Tape tape;
  const Variable y = embedding(leaf, on(ids)), loss = cross_entropy(logits, on(targets));
  tape.backward(std::array{y, loss}, std::array{on(dy), Tensor::full({}, 1, DType::f64, cuda)});
  const std::vector<double> rows = y.value().to_vector<double>();
  const std::vector<double> known = table.to_vector<double>(), from = dy.to_vector<double>();
  const std::vector<double> dtable = leaf.gradient().to_vector<double>();
  for (std::size_t j = 0; j < 3; ++j) {
    CHECK(std::isnan(rows[3 + j]));
    CHECK(std::isnan(rows[9 + j]));
    CHECK(rows[j] == known[6 + j]);
    CHECK(rows[6 + j] == known[j]);
    CHECK(dtable[j] == from[6 + j]);
    CHECK(dtable[6 + j] == from[j] + from[12 + j]);
    CHECK(dtable[3 + j] == 0);
    CHECK(dtable[9 + j] == 0);
  }
  CHECK(std::isnan(loss.value().item()));
  const std::vector<double> dlogits = logits.gradient().to_vector<double>();
  for (std::size_t i = 0; i < 12; ++i) CHECK(std::isnan(dlogits[i]) == (i / 4 == 1));
}

}  // TEST_SUITE("ops")

}  // namespace
}  // namespace weft
