// Inputs that a file lacks, made of those that it has, so that mechanisms of different families can
// run on the same sequences.
#pragma once

#include <set>

#include "apps/attend/tensors.h"

namespace weft {

struct Derived {
  std::vector<Tensor> inputs;     // of the mechanism, in its order
  std::vector<std::string> said;  // how each was made that is not in the file: "y is v"
};

// The inputs of `spec`, in its causal form or the other. What is missing becomes
//     values (of width M)         the file's values
//     another projected input     the queries (for the side of the queries) or the keys, else the
//                                 values, heads joined, times a matrix W (by way of the hidden
//                                 layers that the mechanism wants)
//     the layer's own sequence    the values, heads joined
//     a parameter                 drawn
// with W and parameters drawn as a new layer draws them, from `seed`. What the mechanism draws by
// itself is left to the call. The names that were read go to `used`. Throws where the file has
// nothing to make an input of.
Derived derived_inputs(const Given& given, const AttentionSpec& spec, bool causal,
                       std::uint64_t seed, std::set<std::string>& used);

// Sheets of the inputs that any registered mechanism has, each name once.
AttentionInputs known_inputs();

}  // namespace weft
