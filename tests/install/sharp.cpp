// A mechanism from outside the tree, as a plugin: full attention at a temperature of its own.
//
//     g++ -std=c++20 -O2 -shared -fPIC sharp.cpp -o sharp.so $(pkg-config --cflags weft)
//     charlm --plugin ./sharp.so --attention sharp
#include "ops/attention/mechanism.h"
#include "ops/attention/scores.h"

using namespace weft;

Attended sharp(const AttentionSpec&, const AttentionCall& call, std::span<const Variable> inputs) {
  return attend(AttentionSpec("full:temperature=0.9"), call, inputs);
}

const Registration registered{{.name = "sharp",
                               .inputs = query_key_value,
                               .masks = {.causal = true},
                               .strictly_causal = true,
                               .linear_in_values = true,
                               .attend = sharp}};
