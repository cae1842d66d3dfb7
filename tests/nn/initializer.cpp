#include "nn/initializer.h"

#include <algorithm>
#include <cmath>

#include "nn/layers.h"
#include "tests/nn/checks.h"

using namespace weft;

namespace {

struct Moments {
  double mean = 0, variance = 0, least = 0, most = 0;
};

Moments moments(const Initializer& initializer, const Shape& shape, std::uint64_t seed = 1) {
  const Tensor target = Tensor::full(shape, NAN, DType::f64);
  draw(initializer, "weight", seed, target);
  const std::vector<double> values = target.to_vector<double>();
  const auto count = static_cast<double>(values.size());
  Moments m{0, 0, *std::min_element(values.begin(), values.end()),
            *std::max_element(values.begin(), values.end())};
  for (const double v : values) m.mean += v / count;
  for (const double v : values) m.variance += (v - m.mean) * (v - m.mean) / count;
  return m;
}

// A uniform draw of n numbers within ±limit: bounds kept and nearly reached, mean and variance near
// their expectations.
void check_uniform(const Moments& m, double limit, double n) {
  CHECK(m.least >= -limit);
  CHECK(m.most <= limit);
  CHECK(m.least < -0.995 * limit);
  CHECK(m.most > 0.995 * limit);
  CHECK(std::abs(m.mean) < tolerance::standard_errors * limit / std::sqrt(3 * n));
  CHECK(std::abs(m.variance - limit * limit / 3) <
        tolerance::standard_errors * limit * limit * std::sqrt(4 / (45 * n)));
}

struct One {
  nn::Linear inner{5, 7};
  void each(const auto& visit) { visit("inner", inner); }
};

struct Two {
  nn::Linear before{3, 3}, inner{5, 7};
  void each(const auto& visit) { visit("before", before), visit("inner", inner); }
};

struct Several {
  std::vector<nn::Linear> blocks;
  std::optional<nn::Linear> absent, present;
  nn::LayerNorm norm{3};

  Several() {
    blocks.emplace_back(2, 3);
    blocks.emplace_back(3, 4, false);
    present.emplace(4, 1, false);
  }
  void each(const auto& visit) {
    visit("blocks", blocks), visit("absent", absent);
    visit("present", present), visit("norm", norm);
  }
};

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("initializer: ranges and variances") {
  check_uniform(moments({Initializer::uniform, 0.05}, {100, 64}), 0.05, 6400);
  check_uniform(moments({Initializer::glorot_uniform}, {64, 192}), std::sqrt(6.0 / 256), 12288);
  check_uniform(moments({Initializer::he_uniform}, {8, 24, 32}), std::sqrt(6.0 / (8 * 24)), 6144);
  check_uniform(moments({Initializer::glorot_uniform}, {8, 24, 32}),
                std::sqrt(6.0 / (8 * (24 + 32))), 6144);
  const double n = 10000;
  const Moments m = moments({Initializer::normal, 0.05}, {100, 100});
  CHECK(std::abs(m.mean) < tolerance::standard_errors * 0.05 / std::sqrt(n));
  CHECK(std::abs(m.variance - 0.0025) < tolerance::standard_errors * 0.0025 * std::sqrt(2 / n));
  CHECK(m.most > 3 * 0.05);
  CHECK(m.most < 6 * 0.05);
}

TEST_CASE("initializer: alternating numbers are around 1 and -1 along the last axis") {
  const Tensor target = Tensor::full({50, 7}, NAN, DType::f64);
  draw({Initializer::alternating, 0.05}, "weight", 1, target);
  double square = 0;
  for (i64 i = 0; i < target.count(); ++i) {
    const double off = target.data<double>()[i] - (i % 7 % 2 == 0 ? 1 : -1);
    CHECK(std::abs(off) < 6 * 0.05);
    square += off * off / double(target.count());
  }
  CHECK(std::abs(square - 0.0025) <
        tolerance::standard_errors * 0.0025 * std::sqrt(2 / double(target.count())));
}

TEST_CASE("initializer: constants") {
  const Moments zeros = moments({Initializer::zeros}, {7});
  CHECK(zeros.least == 0);
  CHECK(zeros.most == 0);
  const Moments tenth = moments({Initializer::constant, 0.1}, {7});
  CHECK(tenth.least == 0.1);
  CHECK(tenth.most == 0.1);
}

TEST_CASE("initializer: neighbouring numbers, names and seeds are independent") {
  for (const auto kind : {Initializer::normal, Initializer::uniform}) {
    const auto drawn = [&](const char* name, std::uint64_t seed) {
      const Tensor target = Tensor::empty({4000}, DType::f64);
      draw({kind, 1}, name, seed, target);
      return target.to_vector<double>();
    };
    const std::vector<double> a = drawn("a", 1), b = drawn("b", 1), c = drawn("a", 2);
    double next = 0, name = 0, seed = 0, square = 0;
    for (std::size_t i = 0; i + 1 < a.size(); ++i) {
      next += a[i] * a[i + 1];
      name += a[i] * b[i];
      seed += a[i] * c[i];
      square += a[i] * a[i];
    }
    const double bound = 5 * square / std::sqrt(4000.0);
    CHECK(std::abs(next) < bound);
    CHECK(std::abs(name) < bound);
    CHECK(std::abs(seed) < bound);
  }
}

TEST_CASE("initializer: the start depends on the name alone, not on what else there is") {
  One one;
  Two two;
  initialize(one, 9);
  initialize(two, 9);
  CHECK(same_bits(one.inner.weight.value(), two.inner.weight.value()));
  initialize(two, 10);
  CHECK_FALSE(same_bits(one.inner.weight.value(), two.inner.weight.value()));
}

TEST_CASE("initializer: f32 is the f64 draw, rounded") {
  nn::Linear single(5, 7, true, DType::f32), twice(5, 7, true, DType::f64);
  initialize(single, 4);
  initialize(twice, 4);
  CHECK(same_bits(single.weight.value(), twice.weight.value().to(DType::f32)));
}

TEST_CASE("module: names, counts, the table, and gradients cleared") {
  Several module;
  std::vector<std::string> names;
  for (const NamedParameter& p : parameters(module)) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"blocks.0.weight", "blocks.0.bias", "blocks.1.weight",
                                          "present.weight", "norm.gain", "norm.bias"});
  CHECK(parameter_count(module) == 6 + 3 + 12 + 4 + 3 + 3);
  const std::string table = parameter_table(parameters(module));
  CHECK(table.find("blocks.1.weight") != std::string::npos);
  CHECK(table.find("[3,4]") != std::string::npos);
  CHECK(table.find("31\n") != std::string::npos);
  module.norm.gain.variable.place()->accumulate(Tensor::full({3}, 1, DType::f32));
  zero_gradients(module);
  CHECK_FALSE(module.norm.gain.variable.gradient().defined());
}

}  // TEST_SUITE("nn")
