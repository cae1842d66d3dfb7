#include "ops/views/views.h"

#include "autograd/apply.h"
#include "ops/pointwise/pointwise.h"
#include "tests/check.h"

namespace weft {
namespace {

// Writes the gradients of its inputs into one buffer, as a fused kernel does.
struct SharedBuffer {
  static constexpr const char* name = "shared_buffer";
  bool adjacent;
  Tensor* buffer;
  struct Saved {};
  Tensor forward(Saved&, const Tensor&, const Tensor&, const Tensor&) const {
    return Tensor::full({}, 1, DType::f64, tested_device());
  }
  std::array<Tensor, 3> backward(const Saved&, const Tensor&) const {
    *buffer = random_normal({4, 9}, DType::f64, 7).to(tested_device());
    std::array<Tensor, 3> parts{buffer->slice(1, 0, 2), buffer->slice(1, 2, 5),
                                buffer->slice(1, 5, 9)};
    if (!adjacent) parts[1] = parts[1].clone();
    return parts;
  }
};

TEST_SUITE("ops") {

TEST_CASE("views share the bytes of their input") {
  const Variable x = random_normal({2, 3, 4}, DType::f64, 1).to(tested_device());
  const Tensor& value = x.value();
  CHECK(reshape(x, {6, 4}).value().same_storage(value));
  CHECK(transpose(x, 0, 1).value().same_storage(value));
  CHECK(slice(x, -1, 1, 2).value().same_storage(value));
  CHECK(expand(x, {5, 2, 3, 4}).value().same_storage(value));
  for (const Variable& part : split(x, 1, {1, 2})) CHECK(part.value().same_storage(value));
}

TEST_CASE("concatenate and split are each other's reverse") {
  const Tensor x = random_normal({3, 8, 2}, DType::f64, 1).to(tested_device());
  for (const int axis : {0, 1, 2, -2}) {
    const i64 size = x.size(axis);
    const std::vector<Variable> parts = split(x, axis, {1, size - 1, 0});
    CHECK(parts[0].size(axis) == 1);
    CHECK(same_bits(concatenate(parts, axis).value(), x));
  }
  const Variable a = Tensor::from(std::vector<double>{1, 2}, {2, 1});
  const Variable b = Tensor::from(std::vector<double>{3, 4, 5, 6}, {2, 2});
  CHECK(concatenate(std::vector{a, b}, 1).value().to_vector<double>() ==
        std::vector<double>{1, 3, 4, 2, 5, 6});
}

TEST_CASE("gradients that lie side by side reach the input of split uncopied") {
  for (const bool adjacent : {true, false}) {
    const Variable x = Variable::leaf(random_normal({4, 9}, DType::f64, 1).to(tested_device()));
    Tensor buffer;
    Tape tape;
    const std::vector<Variable> parts = split(x, 1, {2, 3, 4});
    tape.backward(apply(SharedBuffer{adjacent, &buffer}, parts[0], parts[1], parts[2]));
    CHECK(same_bits(x.gradient(), buffer));
    CHECK(x.gradient().same_storage(buffer) == adjacent);
  }
}

TEST_CASE("reshape copies where no strides give the new shape, after a transpose") {
  const Tensor value = random_normal({2, 3, 4}, DType::f64, 1);
  const Variable x = value, turned = reshape(transpose(x, 0, 1), {3, 8});
  CHECK_FALSE(turned.value().same_storage(value));
  CHECK(same_bits(turned.value(), value.transpose(0, 1).clone().reshape({3, 8})));
  CHECK_GRADIENTS(
      [](std::span<const Variable> in) {
        return std::vector{reshape(transpose(in[0], 0, 1), {6, 4})};
      },
      std::vector{value});
  CHECK_ERROR(reshape(x, {25}), "[2,3,4] has 24 elements, [25] has 25");
}

TEST_CASE("views and concatenate refuse what does not fit") {
  const Variable x = random_normal({2, 3}, DType::f64, 1);
  CHECK_ERROR(slice(x, 2, 0, 1), "slice: [2,3] has no axis 2");
  CHECK_ERROR(slice(x, 1, 2, 4), "2 … 4 is not a range of axis 1 of [2,3]");
  CHECK_ERROR(expand(x, {2, 4}), "[2,3] does not broadcast to [2,4]");
  CHECK_ERROR(transpose(x, 0, 2), "tensor: [2,3] has no axis 2");
  CHECK_ERROR(split(x, 1, {1, 1}), "split: axis 1 of [2,3] needs sizes that sum to 3, got 2");
  CHECK_ERROR(split(x, 1, {4, -1}), "is not a range");
  CHECK_ERROR(concatenate({}, 0), "concatenate: wanted at least one input");
  const std::vector<Variable> unequal{x, Variable(random_normal({3, 3}, DType::f64, 1))};
  CHECK_ERROR(concatenate(unequal, 1),
              "f64 [2,3] and f64 [3,3] do not fit side by side along axis 1");
  const std::vector<Variable> types{x, Variable(random_normal({2, 3}, DType::f32, 1))};
  CHECK_ERROR(concatenate(types, 0), "f64 [2,3] and f32 [2,3]");
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
