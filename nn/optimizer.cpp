#include "nn/optimizer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "nn/update.h"
#include "runtime/dispatch.h"
#include "runtime/listed.h"
#include "runtime/names.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 16384;  // elements that one task updates
constexpr i64 at_once = 512;  // of these, in the first-level cache

// The valid values of an option, in words, and a check of a number: also as an f32, in which
// weights are updated.
struct Range {
  const char* words;
  bool (*has)(double x);
};
constexpr Range unit{"a number in [0, 1]", [](double x) { return 0 <= x && x <= 1; }};
constexpr Range below_one{"a number in [0, 1)", [](double x) { return 0 <= x && float(x) < 1; }};
constexpr Range above_zero{"a number in [2e-38, 1]",
                           [](double x) { return 2e-38f <= float(x) && x <= 1; }};
constexpr Range flag{"0 or 1", [](double x) { return x == 0 || x == 1; }};

struct Option {
  const char* name;
  double* value;
  Range range;
};

// The names of a rule's options and states.
std::vector<Option> options_of(Sgd& rule) {
  return {{"momentum", &rule.momentum, unit}, {"nesterov", &rule.nesterov, flag}};
}
std::vector<Option> options_of(Adadelta& rule) {
  return {{"rho", &rule.rho, unit}, {"epsilon", &rule.epsilon, above_zero}};
}
std::vector<Option> options_of(Adam& rule) {
  return {{"beta1", &rule.beta1, below_one},
          {"beta2", &rule.beta2, below_one},
          {"epsilon", &rule.epsilon, above_zero}};
}
struct AdamW : Adam {
  AdamW() { decay = 0.01; }
};
std::vector<Option> options_of(AdamW& rule) {
  std::vector<Option> all = options_of(static_cast<Adam&>(rule));
  all.push_back({"decay", &rule.decay, unit});
  return all;
}

std::vector<std::string> states_of(const Sgd& rule) {
  return rule.momentum > 0 ? std::vector<std::string>{"velocity"} : std::vector<std::string>{};
}
std::vector<std::string> states_of(const Adadelta&) {
  return {"squared_gradient", "squared_update"};
}
std::vector<std::string> states_of(const Adam&) { return {"mean", "mean_square"}; }

// Calls update(w[i], g[i], state[i]…) for a range of elements.
template <class T, class Update, class... State>
void each_weight(i64 count, const Update& update, T* __restrict w, const T* __restrict g,
                 State* __restrict... state) {
  if constexpr (requires { update(w[0], g[0], state[0]...); }) {
    for (i64 i = 0; i < count; ++i) update(w[i], g[i], state[i]...);
  }
}

template <class Rule>
class OptimizerBy final : public Optimizer {
 public:
  OptimizerBy(const Rule& rule, std::vector<NamedParameter> parameters)
      : Optimizer(std::move(parameters), states_of(rule)), rule_(rule) {}

 private:
  bool update(const Slot& slot, const Tensor& gradient, double rate, double scale,
              i64 step) const override {
    const Tensor& weight = slot.parameter.variable.value();
    StepFacts facts{.rate = rate, .scale = scale};
    rule_.correct(facts, static_cast<double>(step));
    const auto on_cpu = [&](auto zero) {
      using T = decltype(zero);
      const auto rule = rule_.template for_weights<T>(facts, weight.rank() >= 2);
      const auto state = [&](std::size_t i) { return slot.states[i].value.template data<T>(); };
      const auto updated = [&](i64 begin, i64 count) {
        T* const w = weight.data<T>() + begin;
        T* const g = gradient.data<T>() + begin;
        std::array<T, at_once> before;
        std::copy_n(w, count, before.begin());
        if (slot.states.empty()) {
          each_weight(count, rule, w, g);
        } else if (slot.states.size() == 1) {
          each_weight(count, rule, w, g, state(0) + begin);
        } else {
          each_weight(count, rule, w, g, state(0) + begin, state(1) + begin);
        }
        std::copy_n(before.begin(), count, g);
        int bad = 0;
        for (i64 i = 0; i < count; ++i) bad |= w[i] * 0 == 0 ? 0 : 1;
        return bad == 0;
      };
      std::atomic<bool> finite = true;
      parallel_ranges(weight.count(), grain, [&](i64 begin, i64 end) {
        for (i64 i = begin; i < end; i += at_once) {
          if (!updated(i, std::min(at_once, end - i))) finite = false;
        }
      });
      return finite.load();
    };
    return weight.dtype() == DType::f32 ? on_cpu(float{}) : on_cpu(double{});
  }

  // Tables of the parameters that have a gradient and are of type T.
  template <class T>
  std::vector<WeightTable<T>> tables(const std::vector<Tensor>& gradients) const {
    std::vector<WeightTable<T>> all;
    for (std::size_t i = 0; i < slots().size(); ++i) {
      const Slot& slot = slots()[i];
      const Tensor& weight = slot.parameter.variable.value();
      if (!gradients[i].defined() || weight.dtype() != dtype_of<T>) continue;
      if (all.empty() || all.back().size == WeightTable<T>::most) all.emplace_back();
      WeightTable<T>& table = all.back();
      auto& entry = table.entry[table.size];
      entry = {weight.data<T>(), gradients[i].data<T>(), {}, before(i).template data<T>(),
               weight.count()};
      for (std::size_t j = 0; j < slot.states.size(); ++j) {
        entry.state[j] = slot.states[j].value.template data<T>();
      }
      table.largest = std::max(table.largest, entry.count);
      table.matrix[table.size++] = weight.rank() >= 2;
    }
    return all;
  }

  void enqueue_on(const Cuda& device, const std::vector<Tensor>& gradients, const Tensor& rate,
                  const Tensor& loss, const StepLimits& limits) const override {
    if constexpr (has_cuda) {  // other builds have no kernels to call
      const auto narrow = tables<float>(gradients);
      const auto wide = tables<double>(gradients);
      i64 sums = 0;
      for (const auto& table : narrow) sums += table.size * table.blocks();
      for (const auto& table : wide) sums += table.size * table.blocks();
      const Tensor squares = Tensor::empty({sums}, DType::f64, rate.device());
      const Tensor facts = Tensor::empty({i64(sizeof(StepFacts))}, DType::u8, rate.device());
      double* next = squares.data<double>();
      const auto add_squares = [&]<class T>(const WeightTable<T>& table) {
        WeightKernels<Cuda, T>::sum_squares(device, table, next);
        next += table.size * table.blocks();
      };
      for (const auto& table : narrow) add_squares(table);
      for (const auto& table : wide) add_squares(table);
      auto* const step_facts = reinterpret_cast<StepFacts*>(facts.bytes());
      auto* const step_report = reinterpret_cast<StepReport*>(report().bytes());
      using Kernels = StepKernels<Cuda, Rule_>;
      Kernels::prepare(device, rule_, squares.data<double>(), sums, rate.data<double>(), limits,
                       loss.defined() && loss.dtype() == DType::f32 ? loss.data<float>() : nullptr,
                       loss.defined() && loss.dtype() == DType::f64 ? loss.data<double>() : nullptr,
                       steps().template data<i64>(), step_facts, step_report);
      for (const auto& table : narrow)
        Kernels::update(device, rule_, table, step_facts, step_report);
      for (const auto& table : wide) Kernels::update(device, rule_, table, step_facts, step_report);
    }
  }

  // Kernels treat AdamW as Adam.
  using Rule_ = std::conditional_t<std::is_base_of_v<Adam, Rule>, Adam, Rule>;
  Rule rule_;
};

// Sums the squares in eight interleaved partial sums, then adds those in order.
template <class T>
double sum_of_squares(const T* values, i64 count) {
  constexpr i64 width = 8;
  std::array<double, width> part{};
  i64 i = 0;
  for (; i + width <= count; i += width) {
    for (i64 j = 0; j < width; ++j) {
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
  const i64 count = gradient.count();
  std::vector<double> sums(static_cast<std::size_t>((count + grain - 1) / grain));
  parallel_ranges(count, grain, [&](i64 begin, i64 end) {
    double& sum = sums[static_cast<std::size_t>(begin / grain)];
    sum = gradient.dtype() == DType::f32
              ? sum_of_squares(gradient.data<float>() + begin, end - begin)
              : sum_of_squares(gradient.data<double>() + begin, end - begin);
  });
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

// "beta1=0.8" and "epsilon=1e-6" of "adam:beta1=0.8,epsilon=1e-6".
std::vector<std::string> settings_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return {};
  return parts_between(std::string_view(text).substr(colon + 1), ',');
}

void set_options(const std::string& text, const std::string& name, std::vector<Option> options) {
  std::set<std::string> seen;
  for (const std::string& setting : settings_of(text)) {
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
    require(status == std::errc{} && stop == last && option->range.has(*option->value),
            "optimizer {}: {} is {}, got '{}'", name, key, option->range.words, setting);
    require(seen.insert(key).second, "optimizer {}: {} is given twice", name, key);
  }
}

// Calls f(Rule{}) for the rule that `text` names, and returns its result.
template <class F>
auto with_rule(const std::string& text, const F& f) {
  const std::string name = text.substr(0, text.find(':'));
  const auto run = [&](auto rule) {
    set_options(text, name, options_of(rule));
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

Optimizer::Optimizer(std::vector<NamedParameter> parameters,
                     const std::vector<std::string>& states) {
  std::set<std::string> names;
  std::map<const void*, std::string> places;
  for (NamedParameter& parameter : parameters) {
    if (!parameter.variable.wants_gradient()) continue;  // frozen
    const Tensor value = parameter.variable.value();
    require(value.contiguous(), "optimizer: {} is not contiguous; parameters are", parameter.name);
    require(value.dtype() == DType::f32 || value.dtype() == DType::f64,
            "optimizer: {} is {}; wanted parameters of f32 or f64, which compute_copy() converts",
            parameter.name, name_of(value.dtype()));
    require(names.insert(parameter.name).second,
            "optimizer: two parameters are named {}; a name tells a parameter's state apart",
            parameter.name);
    const auto [tied, is_new] = places.emplace(parameter.variable.place().get(), parameter.name);
    require(is_new, "optimizer: {} and {} are the same parameter; give it once", tied->second,
            parameter.name);
    if (slots_.empty()) device_ = value.device();
    require(value.device() == device_, "optimizer: {} is on {}, the first parameter on {}",
            parameter.name, name_of(value.device().type), name_of(device_.type));
    Slot slot{std::move(parameter), {}};
    for (const std::string& state : states) {
      slot.states.push_back({state, Tensor::zeros(value.shape(), value.dtype(), value.device())});
    }
    if (device_ != Device{}) before_.push_back(value.clone());
    written_.push_back(false);
    slots_.push_back(std::move(slot));
  }
  steps_ = Tensor::zeros({}, DType::i64, device_);
  if (device_ == Device{}) return;
  report_ = Tensor::empty({sizeof(StepReport) / sizeof(double)}, DType::f64, device_);
  set_failures(0);
}

std::map<std::string, Tensor> Optimizer::state() const {
  std::map<std::string, Tensor> all{{"steps", steps_}};
  for (const Slot& slot : slots_) {
    for (const State& state : slot.states) {
      all.emplace(slot.parameter.name + "." + state.name, state.value);
    }
  }
  return all;
}

std::vector<Tensor> Optimizer::gradients() const {
  std::vector<Tensor> list;
  for (const Slot& slot : slots_) {
    const Tensor gradient = slot.parameter.variable.gradient();
    list.push_back(gradient.defined() ? gradient.packed() : gradient);
  }
  return list;
}

double Optimizer::step(double rate, double largest_norm) {
  require(largest_norm >= 0, "optimizer: the largest norm is 0 or more, got {}", largest_norm);
  if (device_ != Device{}) {
    enqueue(Tensor::full({}, rate, DType::f64, device_), {}, {.norm = largest_norm});
    const double norm = report_.slice(0, 0, 1).item();
    if (!std::isfinite(norm)) return norm;
    for (const Slot& slot : slots_) slot.parameter.variable.place()->clear();
    return norm;
  }
  double sum = 0;
  std::vector<Tensor> gathered = gradients();
  for (const Tensor& gradient : gathered) {
    if (gradient.defined()) sum += sum_of_squares(gradient);
  }
  const double norm = std::sqrt(sum);
  if (!std::isfinite(norm)) return norm;
  const double scale = norm > largest_norm ? largest_norm / norm : 1;
  const i64 step = ++*steps_.data<i64>();
  bool finite = true;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].parameter.variable.place()->clear();
    written_[i] = gathered[i].defined();
    if (!written_[i]) continue;
    if (!gathered[i].unique()) gathered[i] = gathered[i].clone();  // an op gave it to others, too
    finite = update(slots_[i], gathered[i], rate, scale, step) && finite;
  }
  before_.clear();
  if (!finite) before_ = std::move(gathered);
  keep_within_bounds();
  return norm;
}

void Optimizer::set_failures(i64 in_a_row) {
  if (!report_.defined()) return;
  constexpr std::size_t numbers = sizeof(StepReport) / sizeof(double);
  const auto report = std::bit_cast<std::array<double, numbers>>(
      StepReport{.failures = static_cast<double>(in_a_row)});
  report_.copy_from(Tensor::from(std::span<const double>(report), {numbers}));
}

const Tensor& Optimizer::enqueue(const Tensor& rate, const Tensor& loss, const StepLimits& limits) {
  require(device_ != Device{}, "optimizer: the parameters are on the CPU: use step()");
  require(rate.device() == device_ && rate.dtype() == DType::f64 && rate.count() == 1,
          "optimizer: the rate is one f64 on the device of the parameters");
  dispatch_device(device_, [&]<class D>(const D& device) {
    if constexpr (std::is_same_v<D, Cpu>) {
      fail("optimizer: no kernels for this device");
    } else {
      const std::vector<Tensor> gathered = gradients();
      for (std::size_t i = 0; i < slots_.size(); ++i) written_[i] = gathered[i].defined();
      enqueue_on(device, gathered, rate, loss, limits);
      keep_within_bounds();
    }
  });
  return report_;
}

void Optimizer::keep_within_bounds() const {
  for (const Slot& slot : slots_) {
    const Bounds& bounds = slot.parameter.bounds;
    if (bounds == Bounds{}) continue;
    const Tensor& weight = slot.parameter.variable.value();
    dispatch(weight, [&](auto device, auto type) {
      using T = decltype(type);
      const Within<T> within{weight.data<T>(), T(bounds.least), T(bounds.most)};
      if constexpr (std::is_same_v<decltype(device), Cpu>) {
        for (i64 i = 0; i < weight.count(); ++i) within(i);
      } else {
        WeightKernels<decltype(device), T>::keep_within(device, within, weight.count());
      }
    });
  }
}

bool Optimizer::finite() const {
  return device_ == Device{} ? before_.empty() : report_.slice(0, 2, 3).item() == 1;
}

void Optimizer::take_back() {
  for (std::size_t i = 0; i < before_.size(); ++i) {
    if (written_[i]) slots_[i].parameter.variable.value().copy_from(before_[i]);
  }
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

bool gives_option(const std::string& text, const std::string& option) {
  return text.find(":" + option + "=") != text.npos || text.find("," + option + "=") != text.npos;
}

std::string with_option(const std::string& text, const std::string& option, double value) {
  make_optimizer(text, {});
  std::string changed = text.substr(0, text.find(':'));
  char separator = ':';
  const auto add = [&](const std::string& setting) {
    changed += std::exchange(separator, ',') + setting;
  };
  for (const std::string& setting : settings_of(text)) {
    if (!setting.starts_with(option + "=")) add(setting);
  }
  add(fmt::format("{}={}", option, value));
  make_optimizer(changed, {});
  return changed;
}

}  // namespace weft
