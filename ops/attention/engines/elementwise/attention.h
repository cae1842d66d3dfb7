// Attention whose weights are functions of one score each: no softmax, no normaliser, so that a
// weight does not depend on the other keys. One head; biases are by distance.
//
// The queries are the last N of S positions. With `chunk` = c, N = S, position i sees those of its
// own chunk ⌊i/c⌋, the last of which may be short; i and j count from the chunk's start. Without
// chunks c = S:
//
//     s_ij = q_i · k_j / n_i + bias[m + j − i]     n_i: how many keys query i sees
//     a_ij = f(s_ij),   o_i = Σ_j d_ij a_ij v_j    over those keys; with `causal` j <= i
//
//     laplace   f(s) = Φ((s − μ)/σ),  μ = 0.707107, σ = 0.282095      Φ: ops/pointwise
//     relu2     f(s) = max(s, 0)²
//
//     q [B, N, z]   k [B, S, z]   v [B, S, h]   o [B, N, h]   bias [2 m + 1], m + 1 >= c
//
// d is the dropout mask. Both are in X. Ma et al., "Mega: moving average equipped gated attention",
// ICLR 2023, arXiv 2209.10655, eqs. 11 to 13 and appendix B.
//
// Weights are not masked. A key beyond the length has the value 0, so that its
// weight reaches no output; since da_ij = do_i · v_j = 0 it gets no gradient. A key of the future
// has the bias −∞, for which f and its slope are 0. n_i and 1/σ are absorbed by the query, and μ by
// the bias. What remains is f of one product and one sum.
//
// Queries are processed in tiles of 64, those of all whole chunks at once, so that at most 64 rows
// of weights are stored, B (N/c) · 64 · c numbers. The bias of a tile is a view of copies of a part
// of the table: concatenated and split again into rows that are one shorter, each copy begins one
// distance earlier.
//
// Backward recomputes a tile's scores and weights (autograd/recompute.h), and
//
//     da_ij = d_ij do_i · v_j,   ds_ij = da_ij f'(s_ij),   f' = φ((s − μ)/σ)/σ or 2 max(s, 0)
//     dq_i = Σ_j ds_ij k_j / n_i,   dk_j = Σ_i ds_ij q_i / n_i,   dv_j = Σ_i d_ij a_ij do_i
//     dbias[m + δ] = Σ_{j − i = δ} ds_ij
//
// Saved: q / n, k and v as handles or copies, the table. A weight takes 2 (z + h) operations
// forward, and 3 times that backward.
#pragma once

#include <vector>

#include "ops/attention/mechanism.h"

namespace weft {

struct ElementwiseCall {
  const char* name = "elementwise";  // the mechanism, in messages
  bool laplace = true;               // otherwise relu2
  bool causal = false;
  i64 chunk = 0;  // at most S; N = S if it is less
  Tensor lengths = {};
  double dropout = 0;
  RandomKey random = {};  // each tile derives one from it
};

Variable elementwise_attention(const ElementwiseCall& call, const Variable& q, const Variable& k,
                               const Variable& v, const Variable& bias);

// The index of distance 0 in a table [2 m + 1] by distance. Throws, naming the mechanism, if the
// table does not reach `positions` − 1 to either side.
i64 middle_of(const char* name, const Variable& table, i64 positions);

// f of scores.
Variable elementwise_weights(bool laplace, const Variable& scores);

// The fact sheet's cost for a number of pairs, and the memory of one thread.
AttentionCost elementwise_cost(const AttentionSizes& sizes, double pairs, i64 chunk, DType type);

// For definitions: the mask d of self-attention over N positions, [B, 1, N, N].
Tensor elementwise_dropout(const ElementwiseCall& call, i64 B, i64 N, DType type);

}  // namespace weft
