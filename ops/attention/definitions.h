// Shared by the definitions of mechanisms in plain ops: masks as matrices, norms, chosen keys.
// Simple and slow; what makes masks runs on the CPU alone.
#pragma once

#include <functional>

#include "ops/attention/mechanism.h"

namespace weft {

// x with a further axis of size 1 at the end: one factor for each row of a matrix.
Variable column(const Variable& x);

// x / ‖x‖ over the last axis. Where the norm is 0, x is divided by at least 10³⁷, so that the
// result is 0 and a gradient vanishes: all numbers are finite, which --detect-anomaly wants.
Variable unit_rows(const Variable& x);

// 1 before each length, 0 from there on: [B, positions, 1].
Tensor existence(const Tensor& lengths, i64 B, i64 positions, DType type);

// 1 if query i may see key j by the masks of the call, as f64 [B, 1, N, S].
Tensor visibility(const AttentionCall& call, i64 B, i64 N, i64 S);

// z + (0 if `seen` is 1, −∞ if it is 0); shapes broadcast. Undefined: all are seen.
Variable masked(const Variable& z, const Tensor& seen);

// A block's definition item by item: f(b, x) of the n > 0 positions of item b, x [1, n, d], returns
// [1, n, width]; the result is padded with zeros.
Variable item_by_item(const Variable& x, const Tensor& lengths, i64 width,
                      const std::function<Variable(i64 b, const Variable& x)>& f);

// The column of a pair in the dropout mask of attention whose parts have columns of their own. `of`
// returns any column for a pair that is not seen; without it pair (i, j) has column j.
struct MaskColumns {
  i64 count = 0;
  std::function<i64(i64 i, i64 j)> of = {};
};

// Softmax attention over the pairs with `seen` [B|1, H|1, N, S] = 1, undefined: over all; q [B, N,
// H, E], k [B, S, H, E] and v [B, S, H, M] as mechanisms take them, a bias that may be undefined,
// dropout by the call: [B, N, H, M].
Variable attention_over(const Tensor& seen, double temperature, const AttentionCall& call,
                        const Variable& q, const Variable& k, const Variable& v,
                        const Variable& bias = {}, const MaskColumns& columns = {});

// visibility() of self-attention, whose lengths apply to queries too, restricted to the pairs with
// `sees(b, h, i, j)`: [B, heads, N, N]; heads is 1 if all heads have the same pattern.
Tensor self_visibility(const AttentionCall& call, i64 B, i64 heads, i64 N,
                       const std::function<bool(i64 b, i64 h, i64 i, i64 j)>& sees);

// The k largest of every row of z [B, H, N, S] by a full sort; at equal z the lower index: [B, H,
// N, k] i64, ascending, padded with −1. Row i of batch item b has the first count(b, i) elements.
Tensor largest(const Tensor& z, i64 k, const std::function<i64(i64 b, i64 i)>& count);

// The keys T_i of every query, [B, H, N, k] from largest().
struct ChosenKeys {
  Tensor index;  // 0 if there is no key
  Tensor there;  // 1, or 0 if there is none

  ChosenKeys(const Tensor& keys, DType type);
  // z_ij for j ∈ T_i: z [B, H, N, S] → [B, H, N, k]; unspecified if there is no key.
  Variable of(const Variable& z) const;
  // Σ_{j ∈ T_i} a_ij v_j: a [B, H, N, k], v [B, H, S, M] → [B, H, N, M].
  Variable sum(const Variable& a, const Variable& v) const;
};

}  // namespace weft
