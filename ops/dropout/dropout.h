// Dropout (N. Srivastava et al., JMLR 15, 2014), with the kept elements scaled (inverted dropout).
//
//     y = x ⊙ m,    dx = dy ⊙ m,    m ∈ {0, factor}     (mask.h defines m)
//
// Nothing is saved: backward draws m again from the key.
#pragma once

#include "autograd/apply.h"
#include "runtime/random.h"

namespace weft {

struct Dropout {
  static constexpr const char* name = "dropout";
  static constexpr bool takes_bf16 = true;
  double rate;
  RandomKey key;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

// `rate` in [0, 1) is the fraction set to 0, in steps of 1/65536; 0 returns x itself. Each draw
// needs a key of its own. The first axis of x, if it has several, counts examples: a shard of a
// batch is dropped as in the whole batch if the key says where it begins
// (RandomKey::first_example).
Variable dropout(const Variable& x, double rate, const RandomKey& key);

}  // namespace weft
