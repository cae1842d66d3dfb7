#include "ops/pointwise/pointwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "autograd/tape.h"
#include "ops/reduce/reduce.h"
#include "runtime/allocator.h"
#include "tests/check.h"

namespace weft {
namespace {

constexpr double pi = 3.14159265358979323846;
struct Named {
  const char* name;
  Variable (*op)(const Variable&);
  double (*formula)(double);
};

// The textbook forms; the kernels use others.
const std::vector<Named> functions{
    {"relu", relu, [](double x) { return x > 0 ? x : 0.0; }},
    {"leaky_relu", leaky_relu, [](double x) { return x > 0 ? x : 0.01 * x; }},
    {"elu", elu, [](double x) { return x > 0 ? x : std::expm1(x); }},
    {"sigmoid", sigmoid,
     [](double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }},
    {"tanh", tanh, [](double x) { return std::tanh(x); }},
    {"exp", exp, [](double x) { return std::exp(x); }},
    {"log", log, [](double x) { return std::log(x); }},
    {"sqrt", sqrt, [](double x) { return std::sqrt(x); }},
    {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }},
    {"gelu", gelu,
     [](double x) {
       return 0.5 * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
     }},
    {"gelu_erf", gelu_erf, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }}};

Tensor mapped(const Tensor& x, double (*f)(double)) {
  std::vector<double> values = x.to(DType::f64).to_vector<double>();
  for (double& value : values) value = f(value);
  return Tensor::from(values, x.shape());
}

// c[i] = f(a[i'], b[i'']) by NumPy's rule, index by index.
template <class F>
Tensor broadcast_by_index(const Tensor& a, const Tensor& b, const F& f) {
  const Shape shape = broadcast_shape("test", a.shape(), b.shape());
  const std::vector<double> left = a.to_vector<double>(), right = b.to_vector<double>();
  std::vector<double> c(static_cast<std::size_t>(shape.count()));
  for (std::size_t flat = 0; flat < c.size(); ++flat) {
    const auto element = [&](const Tensor& x, const std::vector<double>& values) {
      i64 rest = static_cast<i64>(flat), offset = 0, step = 1;
      for (int back = 1; back <= shape.rank(); ++back) {
        const i64 index = rest % shape[shape.rank() - back];
        rest /= shape[shape.rank() - back];
        if (back > x.rank()) continue;
        if (x.size(-back) > 1) offset += index * step;
        step *= x.size(-back);
      }
      return values[static_cast<std::size_t>(offset)];
    };
    c[flat] = f(element(a, left), element(b, right));
  }
  return Tensor::from(c, shape);
}

// One element on the tested device.
Tensor one(double value, DType type) { return Tensor::full({1}, value, type, tested_device()); }

TEST_SUITE("ops") {

TEST_CASE("pointwise functions agree with their textbook forms") {
  for (const Named& f : functions) {
    CAPTURE(f.name);
    const bool positive = f.name == std::string("log") || f.name == std::string("sqrt");
    const Tensor x =
        random_uniform({5, 7, 13}, DType::f64, 3, positive ? 0.01 : -9, 9).to(tested_device());
    CHECK(relative_error(f.op(x).value(), mapped(x, f.formula)) <= tolerance::forward_f64);
    const Tensor narrow = x.to(DType::f32);
    CHECK(f.op(narrow).value().dtype() == DType::f32);
    CHECK(relative_error(f.op(narrow).value(), mapped(narrow, f.formula)) <=
          tolerance::forward_f32);
  }
}

TEST_CASE("far from zero the functions reach their limits, and NaN stays NaN") {
  for (const DType type : {DType::f32, DType::f64}) {
    for (const double x : {40.0, 300.0, 2000.0, 1e18}) {
      const auto at = [&](Variable (*f)(const Variable&), double point) {
        return f(one(point, type)).value().item();
      };
      CAPTURE(x);
      const double rounded = Tensor::full({1}, x, type).item();
      for (const auto f : {relu, silu, gelu, gelu_erf}) {
        CHECK(at(f, x) == rounded);
        CHECK(std::abs(at(f, -x)) < 1e-15);
      }
      CHECK(at(sigmoid, x) == 1);
      CHECK(at(sigmoid, -x) < 1e-17);
      CHECK(at(tanh, x) == 1);
      CHECK(at(tanh, -x) == -1);
      CHECK(at(exp, -x) < 1e-17);
    }
    CHECK(exp(one(800, type)).value().item() == infinite);
    CHECK(log(one(0, type)).value().item() == -infinite);
    CHECK(std::isnan(log(one(-1, type)).value().item()));
    CHECK(std::isnan(sqrt(one(-1, type)).value().item()));
    CHECK(sqrt(one(infinite, type)).value().item() == infinite);
    for (const Named& f : functions) {
      CAPTURE(f.name);
      CHECK(std::isnan(f.op(one(std::nan(""), type)).value().item()));
    }
  }
}

TEST_CASE("gradients far from zero are finite") {
  for (const DType type : {DType::f32, DType::f64}) {
    for (const auto f :
         {relu, silu, gelu, gelu_erf, sigmoid, static_cast<Variable (*)(const Variable&)>(tanh)}) {
      for (const double x : {-3e38, -1e20, -1e15, -500.0, -90.0, 90.0, 500.0, 1e15, 1e20, 3e38}) {
        CAPTURE(x);
        const Run result = run([&](std::span<const Variable> in) { return std::vector{f(in[0])}; },
                               {Tensor::full({1}, x, type)});
        const double slope = result.gradients[0].item();
        CHECK(std::isfinite(slope));
        if (x < 0) CHECK(std::abs(slope) < 1e-15);
      }
    }
  }
}

TEST_CASE("relu passes no gradient at zero") {
  const Variable x =
      Variable::leaf(Tensor::from(std::vector<double>{-1, 0, 2}, {3}).to(tested_device()));
  Tape tape;
  tape.backward(relu(x), Tensor::from(std::vector<double>{5, 6, 7}, {3}).to(tested_device()));
  CHECK(x.gradient().to_vector<double>() == std::vector<double>{0, 0, 7});
}

// The values of f, and the gradients of its two inputs for a cotangent of ones.
struct TwoSided {
  std::vector<double> c, da, db;
  TwoSided(Variable (*f)(const Variable&, const Variable&), const std::vector<double>& left,
           const std::vector<double>& right, DType type) {
    const Shape shape{static_cast<i64>(left.size())};
    const auto leaf = [&](const std::vector<double>& values) {
      return Variable::leaf(Tensor::from(values, shape).to(type).to(tested_device()));
    };
    const Variable a = leaf(left), b = leaf(right);
    Tape tape;
    const Variable result = f(a, b);
    tape.backward(result, Tensor::full(shape, 1, type, tested_device()));
    const auto numbers = [](const Tensor& x) { return x.to(DType::f64).to_vector<double>(); };
    c = numbers(result.value()), da = numbers(a.gradient()), db = numbers(b.gradient());
  }
};

TEST_CASE("maximum: at a tie the gradient goes to the first") {
  for (const DType type : {DType::f32, DType::f64}) {
    const TwoSided two(maximum, {1, 2, 3, infinite, -infinite, -0.0}, {2, 2, 2, infinite, 5, 0.0},
                       type);
    CHECK(two.c == std::vector<double>{2, 2, 3, infinite, 5, 0});
    CHECK(two.da == std::vector<double>{0, 1, 1, 1, 0, 1});
    CHECK(two.db == std::vector<double>{1, 0, 0, 0, 1, 0});
  }
}

TEST_CASE("maximum: NaN on either side goes on to the output") {
  for (const DType type : {DType::f32, DType::f64}) {
    const TwoSided two(maximum, {not_a_number, 1, not_a_number, not_a_number, infinite},
                       {1, not_a_number, not_a_number, -infinite, not_a_number}, type);
    for (const double c : two.c) CHECK(std::isnan(c));
  }
}

TEST_CASE("div: what IEEE 754 says, and the gradients where the quotient is finite") {
  for (const DType type : {DType::f32, DType::f64}) {
    const TwoSided two(div, {1, -1, 0, 6, 3}, {0, 0, 0, -2, infinite}, type);
    CHECK(two.c[0] == infinite);
    CHECK(two.c[1] == -infinite);
    CHECK(std::isnan(two.c[2]));
    CHECK(two.c[3] == -3);
    CHECK(two.da[3] == -0.5);
    CHECK(two.db[3] == -1.5);
    CHECK(two.c[4] == 0);
    CHECK(two.da[4] == 0);
    CHECK(two.db[4] == 0);
  }
}

TEST_CASE("sqrt passes no gradient at zero, so that the norm of zeros has the gradient zero") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor values = Tensor::from(std::vector<double>{0, 4, not_a_number, -1}, {4}).to(type);
    const Variable x = Variable::leaf(values.to(tested_device()));
    const Variable zeros = Variable::leaf(Tensor::zeros({3}, type, tested_device()));
    Tape tape;
    const Variable root = sqrt(x), norm = sqrt(sum(mul(zeros, zeros)));
    tape.backward(std::array{root, norm}, std::array{Tensor::full({4}, 1, type, tested_device()),
                                                     Tensor::full({}, 1, type, tested_device())});
    const std::vector<double> dx = x.gradient().to(DType::f64).to_vector<double>();
    CHECK(dx[0] == 0);
    CHECK(dx[1] == 0.25);
    CHECK(std::isnan(dx[2]));
    CHECK(std::isnan(dx[3]));
    CHECK(zeros.gradient().to(DType::f64).to_vector<double>() == std::vector<double>{0, 0, 0});
  }
}

TEST_CASE("ops of two inputs broadcast as NumPy does") {
  const std::vector<std::pair<Shape, Shape>> pairs{{{4, 5}, {4, 5}},
                                                   {{3, 4, 5}, {5}},
                                                   {{5}, {3, 4, 5}},
                                                   {{3, 4, 5}, {4, 5}},
                                                   {{3, 4, 5}, {3, 1, 5}},
                                                   {{3, 4, 5}, {3, 4, 1}},
                                                   {{3, 1, 5}, {4, 1}},
                                                   {{6, 1}, {1, 7}},
                                                   {{2, 1, 3, 1}, {4, 1, 5}},
                                                   {{}, {2, 3}},
                                                   {{1, 1}, {1}},
                                                   {{2, 0, 3}, {1, 3}},
                                                   {{2, 3, 4, 2, 3}, {3, 1, 2, 1}}};
  for (const auto& [left, right] : pairs) {
    CAPTURE(fmt::format("{} {}", left, right));
    const Tensor a = random_normal(left, DType::f64, 1).to(tested_device());
    const Tensor b = random_normal(right, DType::f64, 2).to(tested_device());
    for (const Tensor& x : {a, scattered(a)}) {
      for (const Tensor& y : {b, scattered(b)}) {
        CHECK(same_bits(add(x, y).value(), broadcast_by_index(a, b, std::plus<double>())));
        CHECK(same_bits(sub(x, y).value(), broadcast_by_index(a, b, std::minus<double>())));
        CHECK(same_bits(mul(x, y).value(), broadcast_by_index(a, b, std::multiplies<double>())));
        CHECK(same_bits(div(x, y).value(), broadcast_by_index(a, b, std::divides<double>())));
        const auto larger = [](double left, double right) { return std::max(left, right); };
        CHECK(same_bits(maximum(x, y).value(), broadcast_by_index(a, b, larger)));
      }
    }
  }
}

TEST_CASE("scale multiplies, forward and back") {
  const Tensor x = random_normal({37}, DType::f64, 1);
  const Run result =
      run([](std::span<const Variable> in) { return std::vector{scale(in[0], -0.5)}; }, {x});
  const auto scaled = [](double v) { return -0.5 * v; };
  CHECK(same_bits(result.outputs[0], mapped(x, scaled)));
  const Tensor cotangent = random_uniform({37}, DType::f32, 17, -1, 1).to(DType::f64);
  CHECK(same_bits(result.gradients[0], mapped(cotangent, scaled)));
}

TEST_CASE("pointwise ops take empty tensors") {
  const Run result = run(
      [](std::span<const Variable> in) {
        return std::vector{gelu(in[0]),       add(in[0], in[1]), scale(in[0], 2),
                           sub(in[0], in[1]), div(in[0], in[1]), maximum(in[0], in[1])};
      },
      {Tensor::empty({0, 3}, DType::f64), random_normal({3}, DType::f64, 1)});
  CHECK(result.gradients[0].shape() == Shape{0, 3});
  CHECK(result.gradients[1].to_vector<double>() == std::vector<double>{0, 0, 0});
}

TEST_CASE("a function of one variable saves one tensor, add none") {
  const std::size_t bytes = 4096 * sizeof(double);
  const Variable x = Variable::leaf(random_normal({4096}, DType::f64, 1).to(tested_device()));
  Tape tape;
  const std::size_t before = allocator(tested_device()).counts().live;
  for (const auto f : {relu, sigmoid, silu, gelu}) {
    (void)f(x);  // silu and gelu keep x itself, relu and sigmoid their result
  }
  CHECK(allocator(tested_device()).counts().live - before == 2 * bytes);
  (void)add(x, x);
  CHECK(allocator(tested_device()).counts().live - before == 2 * bytes);
}

TEST_CASE("ops say that an input is missing") {
  const Variable x = random_normal({2}, DType::f32, 1);
  CHECK_THROWS_AS(add(Variable(), x), Error);
  CHECK_THROWS_AS(relu(Variable()), Error);
}

TEST_CASE("pointwise ops name themselves, and what they got, in errors") {
  const Variable x = random_normal({2, 3}, DType::f32, 1);
  CHECK_ERROR(add(x, random_normal({2}, DType::f32, 1)), "add: [2,3] and [2] do not broadcast");
  CHECK_ERROR(mul(x, random_normal({3}, DType::f64, 1)),
              "mul: wanted one element type, got f32 [2,3] and f64 [3]");
  CHECK_ERROR(add(Tensor::zeros({2}, DType::i64), Tensor::zeros({2}, DType::i64)),
              "add: wanted f32, f64 or bf16 elements, got i64 [2]");
  CHECK_ERROR(sub(x, random_normal({2}, DType::f32, 1)), "sub: [2,3] and [2] do not broadcast");
  CHECK_ERROR(div(x, random_normal({3}, DType::f64, 1)), "div: wanted one element type");
  CHECK_ERROR(maximum(x, random_normal({4, 3}, DType::f32, 1)),
              "maximum: [2,3] and [4,3] do not broadcast");
  CHECK_ERROR(sqrt(Tensor::zeros({2}, DType::i64)),
              "sqrt: wanted f32, f64 or bf16 elements, got i64 [2]");
  CHECK_ERROR(gelu(Tensor::zeros({2}, DType::u8)),
              "gelu: wanted f32, f64 or bf16 elements, got u8 [2]");
  CHECK_ERROR(scale(Tensor::zeros({2}, DType::i32), 2), "scale: wanted f32, f64 or bf16");
}

}  // TEST_SUITE("ops")
}  // namespace
}  // namespace weft
