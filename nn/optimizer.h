// Optimizers. g is the gradient, scaled down where the norm of all gradients is too large, w the
// weight, η the learning rate, t = 1, 2, … the step.
//
//     sgd       v ← μ v + g;   w −= η v,  or η (g + μ v) with nesterov
//     adadelta  a ← ρ a + (1 − ρ) g²;   Δ = g √(b + ε) / √(a + ε);   w −= η Δ;
//               b ← ρ b + (1 − ρ) Δ²
//     adam      m ← β₁ m + (1 − β₁) g;   v ← β₂ v + (1 − β₂) g²;
//               w −= η m̂ / (√v̂ + ε),   m̂ = m / (1 − β₁ᵗ),   v̂ = v / (1 − β₂ᵗ)
//     adamw     adam, and w −= η λ w (of the w before) for parameters of two axes or more
//
// M. D. Zeiler, arXiv 1212.5701, algorithm 1, with Keras's order and ε; D. P. Kingma, J. Ba, ICLR
// 2015, arXiv 1412.6980, algorithm 1; I. Loshchilov, F. Hutter, ICLR 2019, arXiv 1711.05101,
// algorithm 2; Y. Nesterov 1983 in the form of I. Sutskever et al., ICML 2013.
//
// After every step the weights of a parameter with bounds are clamped to these.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <string>

#include "nn/module.h"
#include "nn/update.h"

namespace weft {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One step with the accumulated gradients, which it uses up; a parameter without one is
  // unchanged, and so is its state. Returns their norm, √(Σ g²) over all of them, in double and
  // added in a fixed order. If it exceeds `largest_norm` the gradients are scaled down to that; if
  // it is not finite nothing is written, and the caller decides what to do.
  double step(double rate, double largest_norm = std::numeric_limits<double>::infinity());
  // Whether all weights that the last step() wrote are finite. If they are not, take_back()
  // restores the weights before it. For that the update stores the weights that it replaces: on the
  // CPU in the memory of the gradients, on a CUDA device in memory of the optimizer's own.
  bool finite() const;

  // The same step on a CUDA device, only queued: the host does not wait, the step can be captured
  // in a graph, and the gradients stay as they are. `rate` is f64 [1] or [] there; if `loss`
  // (undefined: none) is not finite, nothing is written. Returns f64 [4] there: the norm; 1 if
  // weights were written; 1 as long as all weights that were written are finite; how many steps in
  // a row had a norm or a loss that was not finite. After a weight that is not, or as many failures
  // as `limits` has, no step writes any more, whatever is queued already. take_back() restores the
  // weights before the step that made one not finite.
  const Tensor& enqueue(const Tensor& rate, const Tensor& loss, const StepLimits& limits = {});
  void take_back();
  // The failures in a row before the next step, for a training that goes on.
  void set_failures(i64 in_a_row);

  // All state by name: "steps" [], and "<parameter>.<what>" for each. Checkpoints hold it; copying
  // values into these tensors restores it.
  std::map<std::string, Tensor> state() const;

 protected:
  struct State {
    std::string name;
    Tensor value;
  };
  struct Slot {
    NamedParameter parameter;
    std::vector<State> states;
  };
  Optimizer(std::vector<NamedParameter> parameters, const std::vector<std::string>& states);
  // Leaves the weights of before in `gradient`; returns whether the new ones are finite.
  virtual bool update(const Slot& slot, const Tensor& gradient, double rate, double scale,
                      i64 step) const = 0;
  virtual void enqueue_on(const Cuda& device, const std::vector<Tensor>& gradients,
                          const Tensor& rate, const Tensor& loss,
                          const StepLimits& limits) const = 0;
  const std::vector<Slot>& slots() const { return slots_; }
  const Tensor& before(std::size_t slot) const { return before_[slot]; }
  const Tensor& report() const { return report_; }
  const Tensor& steps() const { return steps_; }

 private:
  std::vector<Tensor> gradients() const;
  void keep_within_bounds() const;  // NamedParameter::bounds

  Device device_;
  std::vector<Slot> slots_;
  Tensor steps_;  // [] i64
  // The weights before the last step that wrote any: on the CPU of one that wrote some that are not
  // finite, otherwise undefined.
  std::vector<Tensor> before_;
  std::vector<bool> written_;  // by slot: had a gradient in the last step
  Tensor report_;              // on a CUDA device: of the last step
};

// `text` is name:option=value,option=value with the names above and
//     sgd       momentum μ (0), nesterov (0 or 1; 0)
//     adadelta  rho ρ (0.95), epsilon ε (1e-7)
//     adam      beta1 β₁ (0.9), beta2 β₂ (0.999), epsilon ε (1e-8)
//     adamw     the same, and decay λ (0.01)
// Throws, listing the existing ones, if a name or an option does not exist.
std::unique_ptr<Optimizer> make_optimizer(const std::string& text,
                                          std::vector<NamedParameter> parameters);
// The usual initial rate: 0.01, 1, 0.001, 0.001.
double default_rate(const std::string& text);
// The same optimizer with another value of an option. Throws, listing what exists, if it has no
// such option or the option no such value.
std::string with_option(const std::string& text, const std::string& option, double value);
// Whether `text` itself sets the option.
bool gives_option(const std::string& text, const std::string& option);

}  // namespace weft
