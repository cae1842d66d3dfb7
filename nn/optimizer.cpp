#include "nn/optimizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "ops/attention/mechanism.h"
#include "runtime/dispatch.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr std::int64_t grain = 16384;  // elements that one piece of parallel work updates

// What one update of a run of elements works on.
template <class T>
struct Run {
  std::int64_t count;
  T* weight;
  const T* gradient;
  T* state[2];
};

struct StepFacts {
  double rate, scale;
  std::int64_t step;  // t
  bool matrix;        // the parameter has two axes or more
};

struct Option {
  const char* name;
  double* value;
  double least, most;
};

struct Sgd {
  static constexpr double default_rate = 0.01;
  double momentum = 0, nesterov = 0;

  std::vector<Option> options() {
    return {{"momentum", &momentum, 0, 1}, {"nesterov", &nesterov, 0, 1}};
  }
  std::vector<std::string> states() const {
    return momentum > 0 ? std::vector<std::string>{"velocity"} : std::vector<std::string>{};
  }

  template <class T>
  void update(const Run<T>& run, const StepFacts& facts) const {
    T* const __restrict w = run.weight;
    const T* const __restrict g = run.gradient;
    T* const __restrict v = run.state[0];
    const T rate(facts.rate), scale(facts.scale), mu(momentum);
    if (momentum == 0) {
      for (std::int64_t i = 0; i < run.count; ++i) w[i] -= rate * (scale * g[i]);
      return;
    }
    // With nesterov the step looks one momentum further.
    const T of_gradient(nesterov != 0 ? 1 : 0), of_velocity(nesterov != 0 ? momentum : 1);
    for (std::int64_t i = 0; i < run.count; ++i) {
      const T gradient = scale * g[i];
      v[i] = mu * v[i] + gradient;
      w[i] -= rate * (of_gradient * gradient + of_velocity * v[i]);
    }
  }
};

struct Adadelta {
  static constexpr double default_rate = 1;
  double rho = 0.95, epsilon = 1e-7;

  std::vector<Option> options() { return {{"rho", &rho, 0, 1}, {"epsilon", &epsilon, 0, 1}}; }
  std::vector<std::string> states() const { return {"squared_gradient", "squared_update"}; }

  template <class T>
  void update(const Run<T>& run, const StepFacts& facts) const {
    T* const __restrict w = run.weight;
    const T* const __restrict g = run.gradient;
    T* const __restrict a = run.state[0];
    T* const __restrict b = run.state[1];
    const T rate(facts.rate), scale(facts.scale), keep(rho), take(1 - rho), eps(epsilon);
    for (std::int64_t i = 0; i < run.count; ++i) {
      const T gradient = scale * g[i];
      a[i] = keep * a[i] + take * gradient * gradient;
      const T delta = gradient * std::sqrt(b[i] + eps) / std::sqrt(a[i] + eps);
      w[i] -= rate * delta;
      b[i] = keep * b[i] + take * delta * delta;
    }
  }
};

struct Adam {
  static constexpr double default_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0;

  std::vector<Option> options() {
    return {{"beta1", &beta1, 0, 1}, {"beta2", &beta2, 0, 1}, {"epsilon", &epsilon, 0, 1}};
  }
  std::vector<std::string> states() const { return {"mean", "mean_square"}; }

  template <class T>
  void update(const Run<T>& run, const StepFacts& facts) const {
    T* const __restrict w = run.weight;
    const T* const __restrict g = run.gradient;
    T* const __restrict m = run.state[0];
    T* const __restrict v = run.state[1];
    const auto t = static_cast<double>(facts.step);
    const T scale(facts.scale), eps(epsilon), keep(1 - (facts.matrix ? facts.rate * decay : 0));
    const T keep1(beta1), take1(1 - beta1), keep2(beta2), take2(1 - beta2);
    const T rate(facts.rate / (1 - std::pow(beta1, t)));
    const T root(1 / std::sqrt(1 - std::pow(beta2, t)));
    for (std::int64_t i = 0; i < run.count; ++i) {
      const T gradient = scale * g[i];
      m[i] = keep1 * m[i] + take1 * gradient;
      v[i] = keep2 * v[i] + take2 * gradient * gradient;
      w[i] = keep * w[i] - rate * m[i] / (root * std::sqrt(v[i]) + eps);
    }
  }
};

struct AdamW : Adam {
  AdamW() { decay = 0.01; }
  std::vector<Option> options() {
    std::vector<Option> all = Adam::options();
    all.push_back({"decay", &decay, 0, 1});
    return all;
  }
};

template <class Rule>
class OptimizerBy final : public Optimizer {
 public:
  OptimizerBy(const Rule& rule, std::vector<NamedParameter> parameters)
      : Optimizer(std::move(parameters), rule.states()), rule_(rule) {}

 private:
  void update(const Slot& slot, const Tensor& gradient, double rate, double scale,
              std::int64_t step) const override {
    const Tensor& weight = slot.parameter.variable.value();
    const StepFacts facts{rate, scale, step, weight.rank() >= 2};
    dispatch(weight, [&](Cpu, auto zero) {
      using T = decltype(zero);
      parallel_ranges(weight.count(), grain, [&](std::int64_t begin, std::int64_t end) {
        Run<T> run{end - begin, weight.data<T>() + begin, gradient.data<T>() + begin, {}};
        for (std::size_t i = 0; i < slot.states.size(); ++i) {
          run.state[i] = slot.states[i].value.template data<T>() + begin;
        }
        rule_.update(run, facts);
      });
    });
  }

  Rule rule_;
};

// Sums the squares of eight interleaved parts, then adds the parts in order.
template <class T>
double sum_of_squares(const T* values, std::int64_t count) {
  constexpr std::int64_t width = 8;
  std::array<double, width> part{};
  std::int64_t i = 0;
  for (; i + width <= count; i += width) {
    for (std::int64_t j = 0; j < width; ++j) {
      const double value = values[i + j];
      part[static_cast<std::size_t>(j)] += value * value;
    }
  }
  for (; i < count; ++i) part[0] += static_cast<double>(values[i]) * values[i];
  double sum = 0;
  for (const double p : part) sum += p;
  return sum;
}

double sum_of_squares(const Tensor& gradient) {
  const std::int64_t count = gradient.count();
  std::vector<double> sums(static_cast<std::size_t>((count + grain - 1) / grain));
  dispatch(gradient, [&](Cpu, auto zero) {
    using T = decltype(zero);
    parallel_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
      sums[static_cast<std::size_t>(begin / grain)] =
          sum_of_squares(gradient.data<T>() + begin, end - begin);
    });
  });
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

void set_options(const std::string& text, const std::string& name, std::vector<Option> options) {
  for (std::size_t begin = name.size() + 1; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string setting = text.substr(begin, end - begin);
    const std::size_t equals = std::min(setting.find('='), setting.size());
    const std::string key = setting.substr(0, equals);
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const Option& o) { return o.name == key; });
    if (option == options.end()) {
      std::vector<std::string> names;
      for (const Option& known : options) names.emplace_back(known.name);
      fail("optimizer {}: there is no option '{}'; there are {}", name, key,
           known_names(key, names));
    }
    const char* const last = setting.data() + setting.size();
    const char* const first = std::min(setting.data() + equals + 1, last);
    const auto [stop, status] = std::from_chars(first, last, *option->value);
    require(status == std::errc{} && stop == last && *option->value >= option->least &&
                *option->value <= option->most,
            "optimizer {}: {} is a number in [{}, {}], got '{}'", name, key, option->least,
            option->most, setting);
    begin = end + 1;
  }
}

// Calls f(Rule{}) for the rule that `text` names, and returns what it gives.
template <class F>
auto with_rule(const std::string& text, const F& f) {
  const std::string name = text.substr(0, text.find(':'));
  const auto run = [&](auto rule) {
    set_options(text, name, rule.options());
    return f(rule);
  };
  if (name == "sgd") return run(Sgd{});
  if (name == "adadelta") return run(Adadelta{});
  if (name == "adam") return run(Adam{});
  if (name == "adamw") return run(AdamW{});
  fail("optimizer: there is no '{}'; there are {}", name,
       known_names(name, {"sgd", "adadelta", "adam", "adamw"}));
}

}  // namespace

Optimizer::Optimizer(std::vector<NamedParameter> parameters, const std::vector<std::string>& states)
    : steps_(Tensor::zeros({}, DType::i64)) {
  for (NamedParameter& parameter : parameters) {
    const Tensor& value = parameter.variable.value();
    require(value.contiguous(), "optimizer: {} is not contiguous; parameters are", parameter.name);
    Slot slot{std::move(parameter), {}};
    for (const std::string& state : states) {
      slot.states.push_back({state, Tensor::zeros(value.shape(), value.dtype(), value.device())});
    }
    slots_.push_back(std::move(slot));
  }
}

double Optimizer::step(double rate, double largest_norm) {
  double sum = 0;
  std::vector<Tensor> gradients;
  for (const Slot& slot : slots_) {
    const Tensor gradient = slot.parameter.variable.gradient();
    gradients.push_back(gradient.defined() ? gradient.packed() : gradient);
    if (gradient.defined()) sum += sum_of_squares(gradients.back());
  }
  const double norm = std::sqrt(sum);
  if (!std::isfinite(norm)) return norm;
  const double scale = norm > largest_norm ? largest_norm / norm : 1;
  const std::int64_t step = ++*steps_.data<std::int64_t>();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (gradients[i].defined()) update(slots_[i], gradients[i], rate, scale, step);
  }
  return norm;
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& text,
                                          std::vector<NamedParameter> parameters) {
  return with_rule(text, [&]<class Rule>(const Rule& rule) -> std::unique_ptr<Optimizer> {
    return std::make_unique<OptimizerBy<Rule>>(rule, std::move(parameters));
  });
}

double default_rate(const std::string& text) {
  return with_rule(text, []<class Rule>(const Rule&) { return Rule::default_rate; });
}

}  // namespace weft
