// Tape: records the ops of its thread while it is alive, and walks them backwards there.
//
//     Tape tape;
//     Variable loss = …;          // ops are recorded where an input wants a gradient
//     tape.backward(loss);        // accumulates the gradients of the leaves
//
// Without a tape nothing is recorded, so inference is the default. Nodes are kept in a vector in
// order of execution, which is a topological order, so backward is a plain loop from the end, and
// destruction never recurses. A node holds gradients of its inputs and outputs, never values; only
// an op's typed Saved keeps tensors alive, and it is freed as soon as its backward has run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "autograd/thread_stack.h"
#include "autograd/variable.h"

namespace weft {

// Rethrows the error, as what it is, with the name of the computation and its shapes.
[[noreturn]] void fail_in(const std::string& what, const std::vector<Shape>&, const DeviceError&);

// One recorded application of an op.
class Node {
 public:
  virtual ~Node() = default;
  virtual const char* name() const = 0;
  // The gradients of the inputs, in order (undefined: none), from those of the outputs.
  virtual std::vector<Tensor> backward(std::vector<Tensor> douts) = 0;

  std::vector<std::shared_ptr<Gradient>> inputs;   // null: that input wants no gradient
  std::vector<std::shared_ptr<Gradient>> outputs;  // one without a gradient passes zeros
};

class Tape {
  class Copies;

  // From its construction on, until it ends or an inner one begins, `tape` records on this thread,
  // and `copies` are the compute copies of the step; null: none.
  struct Scope : ThreadStack {
    Scope(Tape* tape, std::shared_ptr<Copies> copies);
    static Scope* innermost() { return static_cast<Scope*>(last); }

    Tape* tape;
    std::shared_ptr<Copies> copies;
    static thread_local ThreadStack* last;
  };

 public:
  // What a tape keeps of the ops it records: the nodes, to walk them; or only the gradients
  // (places) of inputs that no recorded op produced, which are the parameters of what ran (for
  // recompute).
  enum class Keep { nodes, places };

  explicit Tape(Keep keep = Keep::nodes);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // The tape that records on this thread; null if there is none, or inside a Pause.
  static Tape* current();

  // Stops recording in a scope.
  class Pause {
    Scope scope_{nullptr, nullptr};
  };

  void record(std::unique_ptr<Node> node);
  // Whether an op that this tape recorded made the value.
  bool has_recorded(const Variable& value) const {
    return value.wants_gradient() && value.place()->tape_ == number_;
  }
  std::size_t size() const { return nodes_.size(); }
  const std::vector<std::shared_ptr<Gradient>>& places() const { return places_; }

  // Accumulates d loss / d leaf for every leaf that loss depends on. `loss` is a leaf, or this tape
  // recorded it; it has one element, or `dloss` has its shape. Frees each node as it goes; a second
  // call is an error.
  void backward(const Variable& loss, Tensor dloss = {});
  // The same from several values at once, given the gradient of each.
  void backward(std::span<const Variable> values, std::span<const Tensor> gradients);

  // `f` is called during backward with each gradient that is complete: all recorded uses of its
  // value have been walked. (For data parallelism that overlaps with backward.)
  void on_complete(std::function<void(Gradient&)> f) { complete_ = std::move(f); }

 private:
  friend Tensor compute_copy(const Tensor& master, DType type);
  static std::shared_ptr<Copies> copies_of_step();
  void note(const Node& node);

  Keep keep_;
  std::uint64_t number_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::shared_ptr<Gradient>> places_;
  std::unordered_set<std::shared_ptr<Gradient>> known_;  // those, and those that ops filled
  std::function<void(Gradient&)> complete_;
  bool walked_ = false;
  Scope scope_{this, copies_of_step()};  // the walk takes the copies out of it
};

// A parameter in the type that a product multiplies. From the construction of a tape until it has
// been walked, which is a step, parameters do not change: each is converted once, however often the
// tape, or tapes inside it, use it. From the second use on, the layouts that products make of the
// copy are kept beside it (runtime/prepared.h): one for forward and one for backward, each as large
// as the copy. Of a parameter that is used once, no layout outlives its product.
Tensor compute_copy(const Tensor& master, DType type);

}  // namespace weft
