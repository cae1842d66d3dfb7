// Dropout (N. Srivastava et al., JMLR 15, 2014), in the form that scales what is kept.
//
//     y = x ⊙ m,    dx = dy ⊙ m,    m ∈ {0, factor}     (the rule for m stands in mask.h)
//
// Nothing is saved: backward draws m again from the key.
#pragma once

#include "autograd/apply.h"
#include "runtime/random.h"

namespace weft {

struct Dropout {
  static constexpr const char* name = "dropout";
  double rate;
  RandomKey key;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

// `rate` in [0, 1) is the share that becomes 0, in steps of 1/65536; 0 gives x itself. Each draw
// wants a key of its own.
Variable dropout(const Variable& x, double rate, const RandomKey& key);

}  // namespace weft
