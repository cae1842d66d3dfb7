#include "ops/gather/gather.h"

#include <cmath>

#include "autograd/tape.h"
#include "tests/check.h"
#include "tests/cuda_there.h"
#include "tests/ops/cases.h"

namespace weft {
namespace {

Tensor numbers(const std::vector<i64>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

TEST_SUITE("ops") {

TEST_CASE("gather takes each element by its number, and repeats an index of size 1") {
  const Tensor x = random_normal({3, 4, 5}, DType::f64, 1);
  const Tensor far = x.to(tested_device());
  for (const Shape& shape : {Shape{3, 7, 5}, Shape{3, 7, 1}, Shape{1, 7, 5}, Shape{1, 7, 1}}) {
    CAPTURE(fmt::format("{}", shape));
    const Tensor index = random_integers(shape, 4, 2), all = index.expand({3, 7, 5});
    for (const Tensor& from : {far, scattered(x)}) {
      const Tensor y = gather(from, 1, index.to(tested_device())).value().to(Device{});
      REQUIRE(y.shape() == Shape{3, 7, 5});
      for (i64 o = 0; o < 3; ++o) {
        for (i64 i = 0; i < 7; ++i) {
          for (i64 j = 0; j < 5; ++j) {
            const i64 at = all.view<i64, 3>()(o, i, j);
            CHECK(y.view<double, 3>()(o, i, j) == x.view<double, 3>()(o, at, j));
          }
        }
      }
    }
  }
}

TEST_CASE("gather: what was taken several times gets all of their gradients, the rest none") {
  const Variable x = Variable::leaf(Tensor::zeros({4, 2}, DType::f32, tested_device()));
  const Tensor index = numbers({2, 0, 2, 2}, {4, 1}).to(tested_device());
  const Tensor dy = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  Tape tape;
  tape.backward(gather(x, 0, index), dy.to(tested_device()));
  CHECK(x.gradient().to_vector<float>() ==
        std::vector<float>{3, 4, 0, 0, 1 + 5 + 7, 2 + 6 + 8, 0, 0});
}

// 0.1f repeatedly: accumulated in f32, a long sum drifts by per cents.
TEST_CASE("gather: gradients of f32 are gathered in f64") {
  const i64 n = 100000;
  const Variable x = Variable::leaf(Tensor::zeros({2}, DType::f32, tested_device()));
  Tape tape;
  const Variable y = gather(x, 0, Tensor::full({n}, 1, DType::i64, tested_device()));
  tape.backward(y, Tensor::full({n}, double(0.1f), DType::f32, tested_device()));
  CHECK(x.gradient().to_vector<float>()[1] == static_cast<float>(double(0.1f) * double(n)));
}

TEST_CASE("gather hands NaN on, from where it was taken only") {
  const Tensor x = Tensor::from(std::vector<double>{1, std::nan(""), 3}, {3}).to(tested_device());
  const Tensor index = numbers({2, 1, 0}, {3}).to(tested_device());
  const std::vector<double> y = gather(x, 0, index).value().to_vector<double>();
  CHECK(y[0] == 3);
  CHECK(std::isnan(y[1]));
  CHECK(y[2] == 1);
}

TEST_CASE("gather from nothing and of nothing") {
  const auto zeros = [](const Shape& shape, DType type) {
    return Tensor::zeros(shape, type, tested_device());
  };
  CHECK(gather(zeros({3, 0}, DType::f64), 0, zeros({5, 1}, DType::i64)).shape() == Shape{5, 0});
  CHECK(gather(zeros({0, 2}, DType::f64), 0, zeros({0, 2}, DType::i64)).shape() == Shape{0, 2});
  const Variable x = Variable::leaf(Tensor::full({2, 3}, 1, DType::f64, tested_device()));
  Tape tape;
  tape.backward(gather(x, 1, zeros({2, 0}, DType::i64)), zeros({2, 0}, DType::f64));
  CHECK(x.gradient().to_vector<double>() == std::vector<double>(6, 0));
}

TEST_CASE("gather names itself, and what does not fit") {
  const Tensor x = random_normal({2, 3}, DType::f64, 1);
  CHECK_ERROR(gather(x, 1, numbers({0, 2, 1, 3}, {2, 2})),
              "gather: the index at position 3 of [2,2] is 3, but axis 1 of [2,3] has 3 positions");
  CHECK_ERROR(gather(x, 0, numbers({-1}, {1, 1})), "position 0 of [1,1] is -1, but axis 0");
  CHECK_ERROR(
      gather(x, 0, numbers({0, 1}, {1, 2})),
      "gather: an index [1,2] does not fit [2,3]: except for axis 0, its axes must be those or 1");
  CHECK_ERROR(gather(x, 0, numbers({0, 1}, {2})), "gather: an index [2] does not fit [2,3]");
  CHECK_ERROR(gather(x, 2, numbers({0}, {1, 1})), "gather: [2,3] has no axis 2");
  CHECK_ERROR(gather(x, 0, Tensor::zeros({1, 1}, DType::i32)),
              "gather: wanted an index in i64, got i32");
  CHECK_ERROR(gather(Tensor::zeros({2}, DType::u8), 0, numbers({0}, {1})),
              "gather: wanted f32, f64 or bf16 elements, got u8 [2]");
}

TEST_CASE("device: numbers outside of what gather takes from give NaN, and touch nothing else") {
  if (!cuda_is_there()) return;
  constexpr Device cuda{DeviceType::cuda, 0};
  const Variable x = Variable::leaf(Tensor::from(std::vector<double>{1, 2, 3}, {3}).to(cuda));
  Tape tape;
  const Variable y = gather(x, 0, numbers({1, -1, 3, 0}, {4}).to(cuda));
  tape.backward(y, Tensor::from(std::vector<double>{4, 5, 6, 7}, {4}).to(cuda));
  const std::vector<double> values = y.value().to_vector<double>();
  CHECK(values[0] == 2);
  CHECK(std::isnan(values[1]));
  CHECK(std::isnan(values[2]));
  CHECK(values[3] == 1);
  CHECK(x.gradient().to_vector<double>() == std::vector<double>{7, 4, 0});
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
