#include "autograd/recompute.h"

#include <algorithm>

#include "autograd/tape.h"

namespace weft {
namespace {

class RecomputeNode final : public Node {
 public:
  RecomputeNode(const Recomputed& f, std::span<const Variable> inputs) : f_(f) {
    for (const Variable& input : inputs) values_.push_back(input.value());
  }
  const char* name() const override { return "recompute"; }

  std::vector<Tensor> backward(std::vector<Tensor> douts) override {
    std::vector<Variable> leaves;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      leaves.push_back(inputs[i] ? Variable::leaf(values_[i]) : Variable(values_[i]));
    }
    values_.clear();
    Tape tape;
    const std::vector<Variable> results = f_(leaves);
    std::vector<Variable> made;
    std::vector<Tensor> dmade;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (tape.has_recorded(results[i])) {
        made.push_back(results[i]), dmade.push_back(std::move(douts[i]));
      } else if (results[i].wants_gradient()) {  // an input, or a value from outside f
        results[i].place()->accumulate(douts[i], name());
      }
    }
    if (!made.empty()) tape.backward(made, dmade);
    std::vector<Tensor> gradients;
    for (const Variable& leaf : leaves) gradients.push_back(leaf.gradient());
    gradients.resize(inputs.size());  // those of f's own parameters are accumulated already
    return gradients;
  }

 private:
  Recomputed f_;
  std::vector<Tensor> values_;
};

}  // namespace

std::vector<Variable> recompute(const Recomputed& f, std::span<const Variable> inputs) {
  Tape* const tape = Tape::current();
  if (tape == nullptr) return f(inputs);
  auto node = std::make_unique<RecomputeNode>(f, inputs);
  for (const Variable& input : inputs) node->inputs.push_back(input.place());
  std::vector<Variable> results;
  {
    const Tape watch(Tape::Keep::places);
    results = f(inputs);
    for (const auto& place : watch.places()) {
      if (std::ranges::count(node->inputs, place) == 0) node->inputs.push_back(place);
    }
  }
  const auto wants = [](const Variable& result) { return result.wants_gradient(); };
  if (std::ranges::none_of(results, wants)) return results;
  for (Variable& result : results) {
    node->outputs.push_back(std::make_shared<Gradient>(result.value()));
    if (wants(result)) result = Variable(result.value(), node->outputs.back());
  }
  tape->record(std::move(node));
  return results;
}

}  // namespace weft
