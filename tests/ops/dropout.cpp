#include "ops/dropout/dropout.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/dropout/mask_rows.h"
#include "ops/pointwise/pointwise.h"
#include "tests/halves.h"

namespace weft {
namespace {

const RandomKey key{0x9e3779b97f4a7c15ull, 1234567, 42};

// The rule of mask.h, implemented independently.
bool kept_by_the_rule(const RandomKey& random, double rate, i64 columns, i64 row, i64 column) {
  const i64 index = row * ((columns + 7) / 8) + column / 8;
  const Philox words = random.words(static_cast<std::uint64_t>(index));
  std::uint16_t pieces[8];
  for (int w = 0; w < 4; ++w) {
    pieces[2 * w] = static_cast<std::uint16_t>(words.word[w] & 0xffff);
    pieces[2 * w + 1] = static_cast<std::uint16_t>(words.word[w] >> 16);
  }
  return pieces[column % 8] >= std::lround(rate * 65536);
}

TEST_SUITE("ops") {

TEST_CASE_TEMPLATE("dropout keeps what the rule keeps, scaled", T, float, double) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{9}, Shape{3, 7}, Shape{5, 8}, Shape{2, 3, 27},
                             Shape{3, 64}, Shape{2, 1001}, Shape{90, 1000}}) {
    CAPTURE(fmt::format("{}", shape));
    const Tensor x = random_uniform(shape, DType::f64, 1, 1, 2).to(dtype_of<T>).to(tested_device());
    const std::vector<T> before = x.to_vector<T>();
    const std::vector<T> after = dropout(x, 0.3, key).value().template to_vector<T>();
    const i64 columns = shape.rank() == 0 ? 1 : shape.back();
    const T factor = static_cast<T>(65536.0 / (65536 - 19661));
    i64 wrong = 0;
    for (i64 i = 0; i < x.count(); ++i) {
      const bool kept = kept_by_the_rule(key, 0.3, columns, i / columns, i % columns);
      const std::size_t at = static_cast<std::size_t>(i);
      wrong += after[at] != (kept ? before[at] * factor : T(0));
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE("the vector kernels of the mask follow its rule anywhere", T, float, double) {
  for (const i64 columns : {5, 8, 77, 1024}) {
    RandomKey third = key;
    third.first_example = 3;
    const i64 before = columns == 77 ? 3 * 11 : 0;  // rows of three examples, or of none
    const DropoutMask mask(before > 0 ? third : key, 0.45, columns, 11);
    for (const i64 row : {i64{0}, i64{3}, (i64{1} << 33) + 5}) {
      for (i64 begin = 0; begin < columns; begin += 24) {
        const i64 count = std::min<i64>(columns - begin, 333);
        std::vector<T> ones(static_cast<std::size_t>(count), T(1));
        apply_dropout<T>(mask, row, begin, count, ones.data(), ones.data());
        i64 wrong = 0;
        for (i64 j = 0; j < count; ++j) {
          const bool kept = kept_by_the_rule(key, 0.45, columns, before + row, begin + j);
          wrong += mask.keeps(row, begin + j) != kept;
          wrong += ones[static_cast<std::size_t>(j)] != (kept ? static_cast<T>(mask.factor) : T(0));
        }
        for (const i64 step : {1, 7}) {  // of the rows
          each_kept<T>(mask, row, step, begin, [&](i64 i, auto kept) {
            T lane[simd::lanes<T>];
            const simd::Tag<T> d;
            simd::hn::StoreU(simd::hn::IfThenElseZero(kept, simd::hn::Set(d, T(1))), d, lane);
            for (i64 l = 0; l < simd::lanes<T>; ++l) {
              wrong += (lane[l] == 1) !=
                       kept_by_the_rule(key, 0.45, columns, before + row + l * step, begin + i);
            }
          });
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("halves of a batch are dropped by their place in it") {
  for (const Shape& shape : {Shape{4, 1}, Shape{4, 7}, Shape{4, 8}, Shape{4, 3, 27},
                             Shape{6, 5, 2, 16}, Shape{2, 1001}, Shape{4, 0, 3}}) {
    CAPTURE(fmt::format("{}", shape));
    const auto part = [](const Variable& x, i64 first, i64 end) {
      RandomKey own = key;
      own.first_example = first;
      return dropout(slice(x, 0, first, end), 0.4, own);
    };
    check_halves(
        [&](std::span<const Variable> in, i64 first, i64 end) { return part(in[0], first, end); },
        {random_uniform(shape, DType::f64, 1, 1, 2)}, shape[0]);
  }
  // A tensor of one axis has no axis of examples.
  RandomKey later = key;
  later.first_example = 5;
  const Variable x = Tensor::full({100}, 1, DType::f64, tested_device());
  CHECK(same_bits(dropout(x, 0.4, later).value(), dropout(x, 0.4, key).value()));
}

TEST_CASE("the share that is dropped is the rate, and the expectation is the input") {
  for (const double rate : {0.1, 0.5, 0.9}) {
    const i64 count = 200000;
    const std::vector<double> y =
        dropout(Tensor::full({100, 2000}, 1, DType::f64, tested_device()), rate, key)
            .value()
            .to_vector<double>();
    double kept = 0, sum = 0;
    for (const double v : y) {
      kept += v != 0;
      sum += v;
    }
    const double p = 1 - std::lround(rate * 65536) / 65536.0;
    const double error = std::sqrt(p * (1 - p) / count);
    CHECK(std::abs(kept / count - p) <= tolerance::standard_errors * error);
    CHECK(std::abs(sum / count - 1) <= tolerance::standard_errors * error / p);
  }
}

TEST_CASE("neighbours, rows and keys are independent") {
  const i64 count = 1 << 17;
  const auto mask = [&](const RandomKey& random) {
    return dropout(Tensor::full({128, 1024}, 1, DType::f64, tested_device()), 0.5, random).value();
  };
  const std::vector<double> a = mask(key).to_vector<double>();
  const auto agreement = [&](const std::vector<double>& b, std::size_t shift) {
    double same = 0;
    for (std::size_t i = 0; i + shift < a.size(); ++i) same += a[i] == b[i + shift];
    const double n = static_cast<double>(a.size() - shift);
    return std::abs(same / n - 0.5) / std::sqrt(0.25 / n);
  };
  REQUIRE(a.size() == static_cast<std::size_t>(count));
  for (const std::size_t shift : {1u, 2u, 4u, 8u, 64u, 1024u}) {
    CHECK(agreement(a, shift) <= tolerance::standard_errors);
  }
  for (const RandomKey& other : {RandomKey{key.seed + 1, key.step, key.stream},
                                 RandomKey{key.seed, key.step + 1, key.stream},
                                 RandomKey{key.seed, key.step, key.stream + 1}}) {
    CHECK(agreement(mask(other).to_vector<double>(), 0) <= tolerance::standard_errors);
  }
}

TEST_CASE("backward draws the mask of forward again") {
  const Variable x =
      Variable::leaf(random_uniform({7, 27}, DType::f64, 1, 1, 2).to(tested_device()));
  const Tensor dy = random_uniform({7, 27}, DType::f64, 2, 1, 2).to(tested_device());
  Tape tape;
  const Variable y = dropout(x, 0.6, key);
  tape.backward(y, dy);
  const Tensor ratio = mul(x.gradient(), x.value()).value();
  CHECK(relative_error(ratio, mul(y.value(), dy).value()) <= tolerance::forward_f64);
}

TEST_CASE("a rate of zero is the variable itself") {
  const Variable x = Variable::leaf(random_normal({3}, DType::f32, 1).to(tested_device()));
  Tape tape;
  const Variable y = dropout(x, 0, key);
  CHECK(y.place() == x.place());
  CHECK(y.value().same_storage(x.value()));
  CHECK(tape.size() == 0);
}

TEST_CASE("what is dropped is zero, whatever it was") {
  const Tensor x = Tensor::full({1000}, std::nan(""), DType::f32, tested_device());
  i64 zeros = 0;
  for (const float v : dropout(x, 0.5, key).value().to_vector<float>()) zeros += v == 0;
  CHECK(zeros > 400);
}

TEST_CASE("rates outside [0, 1) are refused") {
  const Variable x = random_normal({3}, DType::f32, 1).to(tested_device());
  for (const double rate : {-0.1, 1.0, 1.5, 0.999999, std::nan("")}) {
    CHECK_ERROR(dropout(x, rate, key), "dropout: the dropout rate must be in [0, 1)");
  }
  CHECK_ERROR(dropout(Tensor::zeros({2}, DType::i64), 0.5, key),
              "dropout: wanted f32, f64 or bf16");
  CHECK(dropout(Tensor::empty({0, 4}, DType::f32, tested_device()), 0.5, key).shape() ==
        Shape{0, 4});
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
