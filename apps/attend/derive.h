// Derives missing inputs from those in the file, so that mechanisms of different families can run
// on the same sequences.
#pragma once

#include <set>

#include "apps/attend/tensors.h"

namespace weft {

struct Derived {
  std::vector<Tensor> inputs;     // in the mechanism's order
  std::vector<std::string> said;  // how each missing input was made: "y is v"
};

// The inputs of `spec`, causal or not. A missing input is derived as follows:
//     values (of width M)         the file's values
//     another projected input     the queries (for an input of length N) or the keys, else the
//                                 values, heads concatenated, times a matrix W (through the
//                                 hidden layers of the mechanism's projection, if it has any)
//     the layer's own sequence    the values, heads concatenated
//     a parameter                 drawn
// W and parameters are drawn from `seed` with a new layer's initializers. The call itself draws
// the mechanism's random choices. `used` collects the names that were read. Throws if the file has
// no tensor to derive an input from.
Derived derived_inputs(const Given& given, const AttentionSpec& spec, bool causal,
                       std::uint64_t seed, std::set<std::string>& used);

// The inputs of all registered mechanisms, each name once.
AttentionInputs known_inputs();

}  // namespace weft
