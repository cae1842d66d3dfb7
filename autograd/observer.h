// Observer: is called for every value that an op makes and every gradient that is accumulated.
//
//     struct Printer final : Observer { … } printer;   // on this thread, for its lifetime
//
// It may throw: the op or the backward walk then ends there. Without one, an op pays for a null
// check.
#pragma once

#include <cstddef>
#include <span>

#include "autograd/thread_stack.h"
#include "autograd/variable.h"

namespace weft {

class Observer : public ThreadStack {
 public:
  Observer();
  virtual ~Observer() = default;

  // The last one constructed on this thread, of those that are alive; null if there is none.
  static Observer* current();

  // The op made `values` from `inputs`, recorded or not.
  virtual void made(const char* op, std::span<const Variable> inputs,
                    std::span<const Tensor> values) = 0;
  // The op's backward accumulated the gradient of its input number `input` at `place`.
  virtual void gathered(const char* op, std::size_t input, const Gradient& place) = 0;

 private:
  static thread_local ThreadStack* last;
};

}  // namespace weft
