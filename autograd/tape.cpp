#include "autograd/tape.h"

#include <algorithm>
#include <atomic>

#include <fmt/core.h>

#include "autograd/observer.h"
#include "runtime/arithmetic.h"
#include "runtime/listed.h"
#include "runtime/prepared.h"

namespace weft {
namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

std::vector<Tensor> walked_back(Node& node, std::vector<Tensor> douts) {
  try {
    return node.backward(std::move(douts));
  } catch (const DeviceError& error) {
    std::vector<Shape> shapes;
    for (const auto& output : node.outputs) shapes.push_back(output->shape());
    fail_in(fmt::format("backward of {}", node.name()), shapes, error);
  }
}

}  // namespace

void fail_in(const std::string& what, const std::vector<Shape>& shapes, const DeviceError& error) {
  const std::string message = fmt::format("{}; in {}: {}", error.what(), what, listed(shapes));
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) throw OutOfMemory(message);
  throw DeviceError(message);
}

void Gradient::accumulate(const Tensor& gradient, const char* op) {
  require(gradient.shape() == shape_ && gradient.dtype() == dtype_ && gradient.device() == device_,
          "{}: a gradient is {} of {} on {}, but its value {} of {} on {}", op, gradient.shape(),
          name_of(gradient.dtype()), name_of(gradient.device().type), shape_, name_of(dtype_),
          name_of(device_.type));
  if (!sum_.defined()) {
    sum_ = gradient;
  } else if (sum_.unique() && sum_.contiguous()) {
    add_into(sum_, gradient);
  } else {
    sum_ = added(sum_, gradient);
  }
}

thread_local ThreadStack* Tape::Scope::last = nullptr;

Tape::Scope::Scope(Tape* tape, std::shared_ptr<Copies> copies)
    : ThreadStack(last), tape(tape), copies(std::move(copies)) {}

// The compute copies of a step.
class Tape::Copies {
 public:
  Tensor of(const Tensor& master, DType type) {
    const auto same = [&](const Copy& known) {
      const Tensor& x = known.master;
      if (x.rank() != master.rank() || known.copy.dtype() != type) return false;
      if (x.bytes() != master.bytes() || x.shape() != master.shape()) return false;
      for (int axis = 0; axis < x.rank(); ++axis) {
        if (x.stride(axis) != master.stride(axis)) return false;
      }
      return x.dtype() == master.dtype();
    };
    const auto found = std::ranges::find_if(all_, same);
    if (found != all_.end()) {
      keep_prepared(found->copy);
      return found->copy;
    }
    all_.push_back({master, master.to(type)});
    return all_.back().copy;
  }

 private:
  struct Copy {
    Tensor master, copy;
  };
  std::vector<Copy> all_;
};

// Those of the scope outside, or new ones.
std::shared_ptr<Tape::Copies> Tape::copies_of_step() {
  const Scope* const outside = Scope::innermost();
  return outside != nullptr && outside->copies != nullptr ? outside->copies
                                                          : std::make_shared<Copies>();
}

Tape::Tape(Keep keep) : keep_(keep), number_(next_number()) {}

// Uses that a walk has not counted down yet are released here too: the gradients outlive the tape.
Tape::~Tape() {
  for (const auto& node : nodes_) {
    for (const auto& place : node->inputs) {
      if (place) --place->uses_;
    }
  }
}

Tape* Tape::current() {
  const Scope* const scope = Scope::innermost();
  return scope == nullptr ? nullptr : scope->tape;
}

Tensor compute_copy(const Tensor& master, DType type) {
  const Tape::Scope* const scope = Tape::Scope::innermost();
  const bool keeps = Tape::current() != nullptr && scope->copies != nullptr;
  return keeps && master.dtype() != type ? scope->copies->of(master, type) : master.to(type);
}

void Tape::record(std::unique_ptr<Node> node) {
  require(
      !walked_,
      "tape: {} was applied after backward; a tape is walked once: make a new Tape for each step",
      node->name());
  if (keep_ == Keep::places) return note(*node);
  for (const auto& place : node->inputs) {
    if (place) ++place->uses_;
  }
  for (const auto& place : node->outputs) place->tape_ = number_;
  nodes_.push_back(std::move(node));
}

void Tape::note(const Node& node) {
  for (const auto& place : node.inputs) {
    if (place && known_.insert(place).second) places_.push_back(place);
  }
  known_.insert(node.outputs.begin(), node.outputs.end());
}

void Tape::backward(const Variable& loss, Tensor dloss) {
  if (!dloss.defined()) {
    require(loss.value().count() == 1, "tape: the loss is {}, not one number; give its gradient",
            loss.shape());
    dloss = Tensor::full(loss.shape(), 1, loss.value().dtype(), loss.value().device());
  }
  backward(std::span(&loss, 1), std::span(&dloss, 1));
}

void Tape::backward(std::span<const Variable> values, std::span<const Tensor> gradients) {
  require(
      !walked_,
      "tape: backward was called a second time, but what it needs was freed by the first; record "
      "the step again on a new Tape");
  require(scope_.began_here(),
          "tape: backward was called on another thread than the tape began on; call it there");
  require(values.size() == gradients.size(), "tape: {} gradients were given for {} values",
          gradients.size(), values.size());
  walked_ = true;
  const Scope walk(nullptr, std::move(scope_.copies));  // for the tapes of recompute()
  bool reaches = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].wants_gradient()) continue;
    require(values[i].place()->tape_ == 0 || has_recorded(values[i]),
            "tape: backward was called for a value {} that another tape recorded; call that one's, "
            "before it ends",
            values[i].shape());
    require(gradients[i].defined(), "tape: no gradient was given for the value {}",
            values[i].shape());
    values[i].place()->accumulate(gradients[i], "tape");
    reaches = true;
  }
  require(reaches,
          "tape: the loss depends on nothing that requires a gradient; was it computed while the "
          "tape was alive and not paused?");
  while (!nodes_.empty()) {
    Node* const node = nodes_.back().get();
    std::vector<Tensor> douts;
    bool reached = false;
    for (const auto& output : node->outputs) {
      douts.push_back(output->take());
      reached = reached || douts.back().defined();
    }
    if (reached) {
      for (std::size_t i = 0; i < douts.size(); ++i) {
        if (!douts[i].defined()) douts[i] = node->outputs[i]->zeros();
      }
      std::vector<Tensor> dinputs = walked_back(*node, std::move(douts));
      require(dinputs.size() == node->inputs.size(), "{}: backward gave {} gradients for {} inputs",
              node->name(), dinputs.size(), node->inputs.size());
      for (std::size_t i = 0; i < dinputs.size(); ++i) {
        Tensor gradient = std::exchange(dinputs[i], {});
        if (!node->inputs[i] || !gradient.defined()) continue;
        node->inputs[i]->accumulate(gradient, node->name());
        if (Observer* const observer = Observer::current()) {
          observer->gathered(node->name(), i, *node->inputs[i]);
        }
      }
    }
    for (auto& input : node->inputs) {
      const auto place = std::exchange(input, {});  // its use is released even if complete_ throws
      if (place && --place->uses_ == 0 && complete_) complete_(*place);
    }
    nodes_.pop_back();  // last: if anything above throws, the destructor releases the node's uses
  }
}

}  // namespace weft
