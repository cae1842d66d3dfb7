#include "runtime/tensor.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/check.h"

namespace weft {
namespace {

static_assert(std::is_convertible_v<View<float, 3>, View<const float, 3>>);
static_assert(!std::is_convertible_v<View<const float, 3>, View<float, 3>>);
static_assert(!std::is_convertible_v<View<float, 3>, View<const double, 3>>);

// 0, 1, 2, … in this shape.
Tensor counted(const Shape& shape, DType dtype = DType::f64) {
  std::vector<double> values(static_cast<std::size_t>(shape.count()));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from(values, shape).to(dtype);
}

using Values = std::vector<double>;
Values values(const Tensor& tensor) { return tensor.to_vector<double>(); }

TEST_SUITE("runtime") {

TEST_CASE("a tensor knows its shape, strides and type") {
  const Tensor x = counted({2, 3, 4});
  CHECK(x.rank() == 3);
  CHECK(x.count() == 24);
  CHECK(x.size(-1) == 4);
  CHECK(x.strides() == Shape{12, 4, 1});
  CHECK(x.contiguous());
  CHECK(x.dtype() == DType::f64);
  CHECK(x.view<const double, 3>()(1, 2, 3) == 23);
  const View<const double, 3> read_only = x.transpose(0, 2).view<double, 3>();
  CHECK(read_only(3, 2, 1) == 23);
  CHECK_FALSE(Tensor().defined());
  CHECK(Tensor::full({}, 7, DType::i64).item() == 7);
  CHECK(Tensor::zeros({3}, DType::f32).to_vector<float>() == std::vector<float>(3, 0));
  CHECK_ERROR(x.data<float>(), "wanted f32 elements, got f64");
  CHECK_ERROR((x.view<double, 2>()), "wanted 2 axes, got [2,3,4]");
  CHECK_ERROR(x.size(3), "tensor: [2,3,4] has no axis 3");
  CHECK_ERROR(x.item(), "wanted one element, got [2,3,4]");
  CHECK_ERROR(Tensor::from(Values{1, 2}, {3}), "2 values do not fill the shape [3]");
  CHECK_ERROR((Shape{1, 1, 1, 1, 1, 1, 1}), "at most 6 axes");
}

TEST_CASE("sizes that do not fit are refused before anything is allocated") {
  constexpr i64 large = i64{1} << 40;
  CHECK_ERROR(Tensor::empty({large, large}, DType::f32), "does not fit 64 bits");
  CHECK_ERROR(Tensor::empty({-1}, DType::f32), "must not be negative, got -1");
  CHECK_ERROR(Tensor::empty({large << 22}, DType::f64), "do not fit the address space");
}

TEST_CASE("tensors of nothing: contiguous, with strides that fit, and rows that are counted") {
  for (const Shape& shape : {Shape{2, 0}, Shape{2, 0, 3}, Shape{0, 3}}) {
    const Tensor x = Tensor::zeros(shape, DType::f32);
    CHECK(x.contiguous());
    CHECK(x.rows() == (shape == Shape{2, 0} ? 2 : 0));
  }
  constexpr i64 large = i64{1} << 40;
  CHECK_ERROR(Tensor::zeros({0, large, large}, DType::f32), "the strides of [0,");
  CHECK_ERROR(Tensor().to_vector<float>(), "it is undefined; is an input missing?");
}

TEST_CASE("views share bytes, copies do not") {
  const Tensor x = counted({3, 4});
  const Tensor view = x.slice(1, 1, 3).transpose(0, 1);
  CHECK(view.same_storage(x));
  CHECK_FALSE(x.unique());
  CHECK(values(view) == Values{1, 5, 9, 2, 6, 10});
  const Tensor copy = view.clone();
  CHECK_FALSE(copy.same_storage(x));
  CHECK(copy.contiguous());
  view.fill(-1);
  CHECK(values(x) == Values{0, -1, -1, 3, 4, -1, -1, 7, 8, -1, -1, 11});
  CHECK(values(copy) == Values{1, 5, 9, 2, 6, 10});
  CHECK(x.packed().same_storage(x));
  CHECK_FALSE(view.packed().same_storage(x));
}

TEST_CASE("transpose and slice") {
  const Tensor x = counted({2, 3, 4});
  CHECK(x.transpose(0, 2).shape() == Shape{4, 3, 2});
  CHECK(x.transpose(0, -1).strides() == Shape{1, 4, 12});
  CHECK(values(x.slice(0, 1, 2).slice(2, 2, 3)) == Values{14, 18, 22});
  CHECK(x.slice(1, 3, 3).count() == 0);
  CHECK_ERROR(x.slice(1, 2, 4), "2 … 4 is not a range of axis 1 of [2,3,4]");
  CHECK_ERROR(x.slice(1, 2, 1), "is not a range");
  CHECK_ERROR(x.transpose(0, 3), "tensor: [2,3,4] has no axis 3");
}

TEST_CASE("expand repeats without copying") {
  const Tensor x = counted({3, 1});
  const Tensor wide = x.expand({2, 3, 4});
  CHECK(wide.same_storage(x));
  CHECK(wide.strides() == Shape{0, 1, 0});
  CHECK(values(wide.slice(0, 1, 2)) == Values{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2});
  CHECK_ERROR(x.expand({3, 2}).expand({3, 4}), "[3,2] does not broadcast to [3,4]");
  CHECK_ERROR(x.expand({3}), "more axes");
}

TEST_CASE("reshape of strided tensors: a view where one exists, an error where none does") {
  const Tensor x = counted({2, 6, 4});
  CHECK(values(x.reshape({8, 6})) == values(x));
  CHECK(x.reshape({48}).same_storage(x));
  // [2, 6, 4] with a gap after each row: rows can be split and merged, the last axis cannot be
  // merged.
  const Tensor gaps = counted({2, 6, 8}).slice(2, 1, 5);
  for (const Shape& shape : {Shape{12, 4}, Shape{2, 2, 3, 4}, Shape{4, 3, 2, 2}, Shape{1, 12, 1, 4},
                             Shape{3, 4, 4}, Shape{2, 6, 4, 1}}) {
    CAPTURE(fmt::format("{}", shape));
    const Tensor view = gaps.reshape(shape);
    CHECK(view.same_storage(gaps));
    CHECK(view.shape() == shape);
    CHECK(values(view) == values(gaps));
  }
  CHECK_ERROR(gaps.reshape({2, 24}), "cannot be seen as [2,24] without a copy; call packed()");
  CHECK_ERROR(gaps.reshape({2, 3, 8}), "without a copy");
  CHECK(values(gaps.reshaped({2, 24})) == values(gaps));
  CHECK_FALSE(gaps.reshaped({2, 24}).same_storage(gaps));
  CHECK(gaps.reshaped(gaps.shape()).same_storage(gaps));
  // Splitting heads off a slice of a wider row never copies.
  const Tensor heads = counted({5, 12}).slice(1, 4, 8).reshape({5, 2, 2});
  CHECK(heads.strides() == Shape{12, 2, 1});
  const Tensor turned = x.transpose(1, 2);
  CHECK(values(turned.reshape({2, 2, 2, 6})) == values(turned));
  CHECK(values(turned.reshape({2, 4, 3, 2})) == values(turned));
  CHECK_ERROR(turned.reshape({2, 24}), "without a copy");
  CHECK(values(turned.expand({3, 2, 4, 6}).reshape({3, 2, 4, 6, 1})).size() == 144);
  CHECK(Tensor::empty({0, 3}, DType::f32).reshape({3, 0, 5}).count() == 0);
  CHECK(counted({1}).reshape({}).rank() == 0);
  CHECK_ERROR(x.reshape({7, 7}), "[2,6,4] has 48 elements, [7,7] has 49");
}

TEST_CASE("slices that lie side by side join without a copy") {
  const Tensor x = counted({3, 10});
  const std::vector<Tensor> parts{x.slice(1, 1, 3), x.slice(1, 3, 7), x.slice(1, 7, 8)};
  const Tensor whole = Tensor::joined(parts, 1);
  CHECK(whole.same_storage(x));
  CHECK(values(whole) == values(x.slice(1, 1, 8)));
  CHECK_FALSE(Tensor::joined(std::vector{parts[1], parts[0]}, 1).defined());
  CHECK_FALSE(Tensor::joined(std::vector{parts[0], parts[2]}, 1).defined());
  CHECK_FALSE(Tensor::joined(std::vector{parts[0], parts[1].clone()}, 1).defined());
  const Tensor same = x.slice(0, 0, 1);
  CHECK_FALSE(Tensor::joined(std::vector{same, same}, 0).defined());
  CHECK(values(Tensor::joined(std::vector{same, x.slice(0, 1, 3)}, 0)) == values(x));
}

TEST_CASE("copies convert between all types") {
  const Values numbers{0, 1, 2, 100, 7};
  for (const DType type :
       {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8}) {
    CAPTURE(name_of(type));
    const Tensor x = Tensor::from(numbers, {5}).to(type);
    CHECK(x.dtype() == type);
    CHECK(values(x.to(DType::f64)) == numbers);
    CHECK(values(x.to(DType::bf16).to(DType::i64).to(DType::f64)) == numbers);
    CHECK(x.to(type).same_storage(x));
  }
  CHECK(values(Tensor::from(Values{-1.9, 1.9}, {2}).to(DType::i32).to(DType::f64)) ==
        Values{-1, 1});
  const Tensor turned = counted({2, 3}).transpose(0, 1);
  CHECK(values(turned.to(DType::f32).to(DType::f64)) == values(turned));
  CHECK_ERROR(turned.copy_from(counted({2, 3})), "the source is [2,3], the target [3,2]");
}

TEST_CASE("a copy between views that overlap is that of what was there before") {
  constexpr i64 count = 300'000;  // copied by several threads
  for (const int by : {1, -1}) {
    std::vector<std::int32_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    const Tensor x = Tensor::from(numbers, {count}).to(tested_device());
    const Tensor front = x.slice(0, 0, count - 1), back = x.slice(0, 1, count);
    (by > 0 ? back : front).copy_from(by > 0 ? front : back);
    for (i64 i = 0; i < count; ++i) {
      const bool stays = i == (by > 0 ? 0 : count - 1);
      numbers[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(stays ? i : i - by);
    }
    CHECK(x.to_vector<std::int32_t>() == numbers);
  }
  const Tensor square = Tensor::from(Values{1, 2, 3, 4}, {2, 2}).to(tested_device());
  square.copy_from(square.transpose(0, 1));
  CHECK(square.to_vector<double>() == Values{1, 3, 2, 4});
  square.copy_from(square);
  CHECK(square.to_vector<double>() == Values{1, 3, 2, 4});
}

TEST_CASE("bf16 rounds to the nearest, ties to even") {
  const auto rounded = [](float x) { return static_cast<float>(bf16(x)); };
  CHECK(rounded(1.0f) == 1.0f);
  CHECK(rounded(1.0f + 0x1p-8f) == 1.0f);                       // a tie: to even, down
  CHECK(rounded(1.0f + 3 * 0x1p-8f) == 1.0f + 4 * 0x1p-8f);     // a tie: to even, up
  CHECK(rounded(1.0f + 0x1p-8f + 0x1p-20f) == 1.0f + 0x1p-7f);  // above the tie
  CHECK(rounded(1.0f + 0x1p-8f - 0x1p-20f) == 1.0f);            // below it
  CHECK(rounded(-2.5f) == -2.5f);
  CHECK(std::isinf(rounded(std::numeric_limits<float>::max())));
  CHECK(std::isinf(rounded(std::numeric_limits<float>::infinity())));
  CHECK(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(rounded(std::bit_cast<float>(0x7f800001u))));  // not rounded to infinity
  CHECK(rounded(0x1p-140f) == 0x1p-133f * std::nearbyint(0x1p-140f / 0x1p-133f));
}

TEST_CASE("broadcast shapes follow NumPy") {
  CHECK(broadcast_shape("add", {2, 3, 4}, {4}) == Shape{2, 3, 4});
  CHECK(broadcast_shape("add", {3, 1}, {2, 1, 5}) == Shape{2, 3, 5});
  CHECK(broadcast_shape("add", {}, {2, 0}) == Shape{2, 0});
  CHECK_ERROR(broadcast_shape("mul", {2, 3}, {2, 4}), "mul: [2,3] and [2,4] do not broadcast");
}

}  // TEST_SUITE("runtime")
}  // namespace
}  // namespace weft
