// A block that uses every role and feature of the mechanism interface, in plain ops: what the
// interface promises is tried before a mechanism of the papers needs it. Linked into a test
// program, it is in the registry: `toy`, and `toy-residual`, which owns its residual and norm.
//
// Item by item, over the positions that exist (x [N, d], width W = the option, d where that is 0):
//     p = x w                       w [d, 2 d + extra]: p = [k' | s | c]
//     q = (x + table[⌊position / step⌋]) ωᵀ   table [⌈N_max / step⌉, d] in [0, 1]
//     k = k' ωᵀ                     ω [features, d] drawn
//     z_ij = q_i · k_j / d² + bias_ij + 1[j is among marks]
//     a = softmax over the keys that i sees
//     v = gate + mean(c) + mean(s)  gate [N, W], projected through a hidden layer
//     out = a v, or x + a v of toy-residual;   penalty = 0.1 mean(table)
// Decoding keeps all of x and gate. A position is its place in the call plus the call's offset.
#pragma once

#include "ops/attention/mechanism.h"

namespace weft {

// How often ω was drawn since the program began.
int toy_draws();

}  // namespace weft
