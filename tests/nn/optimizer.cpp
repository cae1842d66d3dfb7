#include "nn/optimizer.h"

#include <cmath>
#include <functional>
#include <map>

#include "nn/checkpoint.h"
#include "tests/nn/checks.h"
#include "tests/threads.h"

using namespace weft;

namespace {

// More than one task, and not a multiple of the vector length.
constexpr i64 long_count = 16384 + 77;

struct Weights {
  Parameter matrix, vector, idle;

  explicit Weights(DType dtype)
      : matrix({31, 13}, {}, dtype), vector({long_count}, {}, dtype), idle({5, 2}, {}, dtype) {
    randomise(*this, 3);
    move_to(*this, tested_device());
  }
  void each(const auto& visit) {
    visit("matrix", matrix), visit("vector", vector), visit("idle", idle);
  }
};

struct Couple {
  Parameter first, second;
  void each(const auto& visit) { visit("first", first), visit("second", second); }
};

struct Many {
  std::vector<Parameter> all;

  void each(const auto& visit) {
    for (std::size_t i = 0; i < all.size(); ++i) visit(std::to_string(i), all[i]);
  }
};

Tensor gradient_of(const Parameter& parameter, int step) {
  const Tensor& value = parameter.value();
  const std::uint64_t seed = static_cast<std::uint64_t>(100 * step) + value.shape()[0];
  return random_normal(value.shape(), value.dtype(), seed).to(value.device());
}

// `idle` never gets a gradient.
void set_gradients(Weights& weights, int step) {
  zero_gradients(weights);
  for (Parameter* p : {&weights.matrix, &weights.vector}) {
    p->variable.place()->accumulate(gradient_of(*p, step));
  }
}

// One weight with its state (two numbers that start at 0), by the formulas.
struct Scalar {
  double w = 0, s = 0, u = 0;
};
using Formula = std::function<void(Scalar&, double g, double rate, int t, bool matrix)>;

const std::map<std::string, Formula> formulas{
    {"sgd", [](Scalar& x, double g, double rate, int, bool) { x.w -= rate * g; }},
    {"sgd:momentum=0.8",
     [](Scalar& x, double g, double rate, int, bool) {
       x.s = 0.8 * x.s + g;
       x.w -= rate * x.s;
     }},
    {"sgd:momentum=0.8,nesterov=1",
     [](Scalar& x, double g, double rate, int, bool) {
       x.s = 0.8 * x.s + g;
       x.w -= rate * (g + 0.8 * x.s);
     }},
    {"adadelta",
     [](Scalar& x, double g, double rate, int, bool) {
       x.s = 0.95 * x.s + 0.05 * g * g;
       const double delta = g * std::sqrt(x.u + 1e-7) / std::sqrt(x.s + 1e-7);
       x.w -= rate * delta;
       x.u = 0.95 * x.u + 0.05 * delta * delta;
     }},
    {"adadelta:rho=0.9,epsilon=1e-3",
     [](Scalar& x, double g, double rate, int, bool) {
       x.s = 0.9 * x.s + 0.1 * g * g;
       const double delta = g * std::sqrt(x.u + 1e-3) / std::sqrt(x.s + 1e-3);
       x.w -= rate * delta;
       x.u = 0.9 * x.u + 0.1 * delta * delta;
     }},
    {"adam",
     [](Scalar& x, double g, double rate, int t, bool) {
       x.s = 0.9 * x.s + 0.1 * g;
       x.u = 0.999 * x.u + 0.001 * g * g;
       const double mean = x.s / (1 - std::pow(0.9, t)), square = x.u / (1 - std::pow(0.999, t));
       x.w -= rate * mean / (std::sqrt(square) + 1e-8);
     }},
    {"adamw:beta2=0.95,decay=0.1", [](Scalar& x, double g, double rate, int t, bool matrix) {
       x.s = 0.9 * x.s + 0.1 * g;
       x.u = 0.95 * x.u + 0.05 * g * g;
       const double mean = x.s / (1 - std::pow(0.9, t)), square = x.u / (1 - std::pow(0.95, t));
       x.w -= rate * (mean / (std::sqrt(square) + 1e-8) + (matrix ? 0.1 * x.w : 0));
     }}};

// Five steps with a rate that changes; every third step is clipped.
double worst_difference(const std::string& text, const Formula& formula, DType dtype) {
  Weights weights(dtype);
  const auto optimizer = make_optimizer(text, parameters(weights));
  std::map<Parameter*, std::vector<Scalar>> expected;
  for (Parameter* p : {&weights.matrix, &weights.vector}) {
    for (const double w : p->value().to(DType::f64).to_vector<double>()) expected[p].push_back({w});
  }
  for (int t = 1; t <= 5; ++t) {
    set_gradients(weights, t);
    const double rate = 0.1 / t;
    std::map<Parameter*, std::vector<double>> gradients;
    double squares = 0;
    for (const auto& [p, scalars] : expected) {
      gradients[p] = gradient_of(*p, t).to(DType::f64).to_vector<double>();
      for (const double g : gradients[p]) squares += g * g;
    }
    const double norm = std::sqrt(squares);
    const double limit = t % 3 == 0 ? norm / 2 : 2 * norm;
    for (auto& [p, scalars] : expected) {
      for (std::size_t i = 0; i < scalars.size(); ++i) {
        const double g = gradients[p][i] * (t % 3 == 0 ? 0.5 : 1);
        formula(scalars[i], g, rate, t, p->value().rank() == 2);
      }
    }
    CHECK(optimizer->step(rate, limit) == doctest::Approx(norm).epsilon(1e-6));
  }
  double worst = 0;
  for (const auto& [p, scalars] : expected) {
    std::vector<double> values;
    for (const Scalar& scalar : scalars) values.push_back(scalar.w);
    worst = worse(worst, relative_error(p->value(), Tensor::from(values, p->value().shape())));
  }
  return worst;
}

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("optimizers: five steps are those of the formulas") {
  for (const auto& [text, formula] : formulas) {
    CAPTURE(text);
    CHECK(worst_difference(text, formula, DType::f64) < tolerance::backward_f64);
    CHECK(worst_difference(text, formula, DType::f32) < tolerance::backward_f32);
  }
}

TEST_CASE("optimizers: a parameter without a gradient stays, and so does its state") {
  for (const auto& [text, formula] : formulas) {
    Weights weights(DType::f32);
    const std::vector<float> before = weights.idle.value().to_vector<float>();
    const auto optimizer = make_optimizer(text, parameters(weights));
    set_gradients(weights, 1);
    optimizer->step(0.1);
    CHECK(weights.idle.value().to_vector<float>() == before);
    for (const auto& [name, value] : optimizer->state()) {
      if (name.rfind("idle.", 0) != 0) continue;
      for (const float element : value.to_vector<float>()) CHECK(element == 0);
    }
  }
}

TEST_CASE("optimizers: a gradient that is not finite is reported and nothing is written") {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Weights weights(DType::f32);
    const auto optimizer = make_optimizer("adam", parameters(weights));
    set_gradients(weights, 1);
    optimizer->step(0.1);
    const auto written = [&] {
      std::vector<std::vector<float>> all;
      for (const NamedParameter& p : parameters(weights)) {
        all.push_back(p.variable.value().to_vector<float>());
      }
      for (const auto& [name, value] : optimizer->state()) {
        all.push_back(value.to(DType::f32).to_vector<float>());
      }
      return all;
    };
    const std::vector<std::vector<float>> before = written();
    set_gradients(weights, 2);
    weights.vector.variable.gradient().slice(0, long_count - 1, long_count).fill(bad);
    CHECK_FALSE(std::isfinite(optimizer->step(0.1, 1.0)));
    CHECK(written() == before);
  }
}

TEST_CASE("optimizers: state copied into another one gives the same next step") {
  for (const auto& [text, formula] : formulas) {
    CAPTURE(text);
    Weights first(DType::f32), second(DType::f32);
    const auto a = make_optimizer(text, parameters(first));
    for (int t = 1; t <= 3; ++t) set_gradients(first, t), a->step(0.1);
    const auto b = make_optimizer(text, parameters(second));
    second.matrix.value().copy_from(first.matrix.value());
    second.vector.value().copy_from(first.vector.value());
    load_tensors(b->state(), a->state(), "the first");
    set_gradients(first, 4), a->step(0.1);
    set_gradients(second, 4), b->step(0.1);
    CHECK(same_bits(first.matrix.value(), second.matrix.value()));
    CHECK(same_bits(first.vector.value(), second.vector.value()));
  }
}

TEST_CASE("optimizers: one thread or three, the same bits") {
  for (const auto& [text, formula] : formulas) {
    Weights one(DType::f32), three(DType::f32);
    for (Weights* weights : {&one, &three}) {
      const ThreadsOf team(weights == &one ? 1 : 3);
      const auto optimizer = make_optimizer(text, parameters(*weights));
      for (int t = 1; t <= 3; ++t) set_gradients(*weights, t), optimizer->step(0.1, 10);
    }
    CHECK(same_bits(one.vector.value(), three.vector.value()));
  }
}

TEST_CASE("optimizers: gradients that are views count as they are seen") {
  Weights straight(DType::f64), viewed(DType::f64);
  set_gradients(straight, 1);
  zero_gradients(viewed);
  const Tensor turned = gradient_of(viewed.matrix, 1).transpose(0, 1).clone();
  viewed.matrix.variable.place()->accumulate(turned.transpose(0, 1));
  viewed.vector.variable.place()->accumulate(gradient_of(viewed.vector, 1));
  const double norm = make_optimizer("sgd", parameters(straight))->step(0.1);
  CHECK(make_optimizer("sgd", parameters(viewed))->step(0.1) == norm);
  CHECK(same_bits(viewed.matrix.value(), straight.matrix.value()));
}

TEST_CASE("optimizers: more parameters than one launch on a device takes") {
  constexpr int count = 130;
  Many weights;
  for (int i = 0; i < count; ++i) weights.all.emplace_back(Shape{1}, Initializer{}, DType::f32);
  move_to(weights, tested_device());
  double squares = 0;
  for (int i = 0; i < count; ++i) {
    Parameter& p = weights.all[std::size_t(i)];
    p.variable.value().fill(0);
    p.variable.place()->accumulate(Tensor::full({1}, i, DType::f32, tested_device()));
    squares += double(i) * i;
  }
  CHECK(make_optimizer("sgd", parameters(weights))->step(0.5) == std::sqrt(squares));
  for (int i = 0; i < count; ++i) CHECK(weights.all[std::size_t(i)].value().item() == -0.5 * i);
}

TEST_CASE("optimizers: queued steps stop at a loss or a weight that is not finite") {
  const Device device = tested_device();
  Weights weights(DType::f32);
  const auto optimizer = make_optimizer("sgd", parameters(weights));
  const Tensor rate = Tensor::full({1}, 0.1, DType::f64, device);
  set_gradients(weights, 1);
  if (device == Device{}) {
    CHECK_ERROR(optimizer->enqueue(rate, {}), "the parameters are on the CPU");
    return;
  }
  const auto step = [&](double loss, double by) {
    const Tensor said = optimizer->enqueue(Tensor::full({1}, by, DType::f64, device),
                                           Tensor::full({}, loss, DType::f32, device));
    return said.to_vector<double>();
  };
  const auto weights_now = [&] { return weights.vector.value().clone(); };
  const Tensor start = weights_now();
  CHECK(step(1, 0.1)[1] == 1);
  const Tensor good = weights_now();
  CHECK_FALSE(same_bits(good, start));
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    const std::vector<double> said = step(bad, 0.1);
    CHECK(said[1] == 0);
    CHECK(said[2] == 1);
    CHECK(same_bits(weights_now(), good));
  }
  const std::vector<double> said = step(1, 1e300);
  CHECK(said[1] == 1);
  CHECK(said[2] == 0);
  CHECK(step(1, 0.1)[1] == 0);  // nothing is written any more
  optimizer->take_back();
  CHECK(same_bits(weights_now(), good));
}

TEST_CASE("optimizers: after so many failures in a row no queued step writes any more") {
  const Device device = tested_device();
  if (device == Device{}) return;
  for (const i64 before : {0, 1}) {
    CAPTURE(before);
    Weights weights(DType::f32);
    const auto optimizer = make_optimizer("sgd", parameters(weights));
    set_gradients(weights, 1);
    const auto step = [&](double loss) {
      const Tensor said =
          optimizer->enqueue(Tensor::full({1}, 0.1, DType::f64, device),
                             Tensor::full({}, loss, DType::f32, device), {.failures = 2});
      return said.to_vector<double>();
    };
    CHECK(step(std::nan(""))[3] == 1);
    CHECK(step(1)[3] == 0);
    optimizer->set_failures(before);
    for (i64 failures = before; failures < 2; ++failures) CHECK(step(std::nan(""))[1] == 0);
    const Tensor last = weights.vector.value().clone();
    CHECK(step(1)[1] == 0);
    CHECK(same_bits(weights.vector.value(), last));
    optimizer->set_failures(0);
    CHECK(step(1)[1] == 1);
  }
}

struct Tied {
  nn::Linear first{5, 5}, second = first;
  void each(const auto& visit) { visit("first", first), visit("second", second); }
};

TEST_CASE("optimizers: tied weights are one parameter, also behind a move") {
  Tied tied;
  initialize(tied, 1);
  CHECK(parameter_count(tied) == 30);
  move_to(tied, tested_device());
  CHECK(tied.first.weight.variable.place() == tied.second.weight.variable.place());
  CHECK(tied.first.weight.value().same_storage(tied.second.weight.value()));
  CHECK(parameters(tied).size() == 2);
  const auto optimizer = make_optimizer("sgd", parameters(tied));
  const Tensor before = tied.first.weight.value().clone();
  tied.first.weight.variable.place()->accumulate(
      Tensor::full({5, 5}, 4, DType::f32, tested_device()));
  CHECK(optimizer->step(0.1) == doctest::Approx(20));
  const std::vector<float> was = before.to_vector<float>();
  const std::vector<float> now = tied.second.weight.value().to_vector<float>();
  for (std::size_t i = 0; i < was.size(); ++i) CHECK(now[i] == doctest::Approx(was[i] - 0.4f));
}

TEST_CASE("optimizers: a frozen parameter stays as it is") {
  Couple two;
  for (Parameter* const p : {&two.first, &two.second}) {
    p->variable = Variable::leaf(Tensor::full({3}, 2, DType::f32));
  }
  two.first.variable = two.first.variable.detached();
  move_to(two, tested_device());
  zero_gradients(two);
  const auto optimizer = make_optimizer("adam", parameters(two));
  CHECK(optimizer->state().size() == 3);
  two.second.variable.place()->accumulate(Tensor::full({3}, 1, DType::f32, tested_device()));
  optimizer->step(0.1);
  CHECK_FALSE(two.first.variable.wants_gradient());
  CHECK(two.first.value().to_vector<float>() == std::vector<float>{2, 2, 2});
  CHECK(two.second.value().to_vector<float>()[0] == doctest::Approx(1.9f));
}

TEST_CASE("optimizers: parameters that cannot be told apart, or stepped") {
  const Variable a = Variable::leaf(Tensor::full({3}, 2, DType::f32));
  const Variable b = Variable::leaf(Tensor::full({3}, 2, DType::f32));
  const Variable half = Variable::leaf(Tensor::full({3}, 2, DType::bf16));
  CHECK_ERROR(make_optimizer("sgd", {{"a", a, {}}, {"a", b, {}}}), "two parameters are named a");
  CHECK_ERROR(make_optimizer("sgd", {{"a", a, {}}, {"b", a, {}}}),
              "optimizer: a and b are the same parameter");
  CHECK_ERROR(make_optimizer("sgd", {{"a", half, {}}}), "a is bf16; wanted parameters of f32 or");
  const auto optimizer = make_optimizer("sgd", {{"a", a, {}}});
  a.place()->accumulate(Tensor::full({3}, 1, DType::f32));
  CHECK_ERROR(optimizer->step(0.1, -1), "the largest norm is 0 or more, got -1");
  CHECK_ERROR(optimizer->step(0.1, std::nan("")), "the largest norm is 0 or more, got nan");
}

TEST_CASE(
    "optimizers: a step whose weights are not finite is taken back, one gradient for two "
    "parameters") {
  const Device device = tested_device();
  for (const auto& [text, formula] : formulas) {
    CAPTURE(text);
    const Tensor start = random_normal({40000}, DType::f32, 1);
    Couple two;
    for (Parameter* const p : {&two.first, &two.second}) {
      p->variable = Variable::leaf(start.clone().to(device));
    }
    const auto optimizer = make_optimizer(text, parameters(two));
    const auto step = [&](double rate) {
      const Tensor gradient = random_normal({40000}, DType::f32, 2).to(device);
      for (const Parameter* const p : {&two.first, &two.second}) {
        p->variable.place()->accumulate(gradient);
      }
      CHECK(std::isfinite(optimizer->step(rate)));
      CHECK_FALSE(two.first.variable.gradient().defined());
    };
    step(0.1);
    CHECK(optimizer->finite());
    const Tensor good = two.first.variable.value().clone();
    CHECK(same_bits(two.second.variable.value(), good));
    CHECK_FALSE(same_bits(good, start.to(device)));
    step(1e300);
    CHECK_FALSE(optimizer->finite());
    optimizer->take_back();
    CHECK(same_bits(two.first.variable.value(), good));
    CHECK(same_bits(two.second.variable.value(), good));
  }
}

TEST_CASE("optimizers: names and options that do not exist, and values out of range") {
  Weights weights(DType::f32);
  const auto make = [&](const char* text) { make_optimizer(text, parameters(weights)); };
  CHECK_THROWS_WITH_AS(make("adadleta"),
                       "optimizer: there is no 'adadleta'; there are sgd, adadelta, adam, adamw; "
                       "did you mean adadelta?",
                       Error);
  CHECK_THROWS_WITH_AS(make("adam:rho=0.9"),
                       "optimizer adam: there is no option 'rho'; there are beta1, beta2, epsilon",
                       Error);
  CHECK_THROWS_WITH_AS(
      make("adam:bata1=0.9"),
      "optimizer adam: there is no option 'bata1'; there are beta1, beta2, epsilon; "
      "did you mean beta1?",
      Error);
  CHECK_THROWS_WITH_AS(make("adadelta:rho=1.5"),
                       "optimizer adadelta: rho is a number in [0, 1], got 'rho=1.5'", Error);
  for (const char* text : {"adam:beta1=1", "adamw:beta2=0.99999999", "adam:epsilon=0",
                           "adadelta:epsilon=1e-46", "sgd:nesterov=0.5"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(make(text), Error);
  }
  CHECK_THROWS_WITH_AS(make("sgd:momentum=0.9,momentum=0.1"),
                       "optimizer sgd: momentum is given twice", Error);
  CHECK_THROWS_AS(make("adadelta:rho"), Error);
  CHECK_THROWS_AS(make("adadelta:rho="), Error);
  CHECK_THROWS_AS(make("adadelta:rho=0.9x"), Error);
  CHECK_THROWS_AS(make("adadelta:"), Error);
  CHECK(default_rate("adadelta") == 1);
  CHECK(default_rate("adamw:decay=0.1") == 1e-3);
}

}  // TEST_SUITE("nn")
