// Observer: sees every value that an op makes and every gradient that gathers, as it happens.
//
//     struct Printer final : Observer { … } printer;   // on this thread, until it goes
//
// It may throw: the op or the walk then ends there. Without one, an op pays for a null check.
#pragma once

#include <cstddef>
#include <span>

#include "autograd/variable.h"

namespace weft {

class Observer {
 public:
  Observer();  // takes the place of the one before until it goes
  virtual ~Observer();
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // The last one made on this thread; null where there is none.
  static Observer* current();

  // The op made `values` of `inputs`; recorded or not.
  virtual void made(const char* op, std::span<const Variable> inputs,
                    std::span<const Tensor> values) = 0;
  // The op's backward added to the gradient of its input number `input`, which gathers at `place`.
  virtual void gathered(const char* op, std::size_t input, const Gradient& place) = 0;

 private:
  Observer* previous_;
};

}  // namespace weft
