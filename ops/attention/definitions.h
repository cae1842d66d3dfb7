// What the definitions of mechanisms in plain ops share: masks as matrices, norms, chosen keys. On
// the CPU, simple, and slow.
#pragma once

#include <functional>

#include "ops/attention/mechanism.h"

namespace weft {

// x with an axis of size 1 behind the others: the factor of each row of a matrix.
Variable column(const Variable& x);

// x / ‖x‖ over the last axis; where the norm is 0, 0 without gradient.
Variable unit_rows(const Variable& x);

// 1 before each length, 0 from there on: [B, positions, 1].
Tensor existence(const Tensor& lengths, i64 B, i64 positions, DType type);

// 1 where query i may see key j by the masks of the call, as f64 [B, 1, N, S].
Tensor visibility(const AttentionCall& call, i64 B, i64 N, i64 S);

// z + (0 where `seen` is 1, −∞ where it is 0); shapes broadcast.
Variable masked(const Variable& z, const Tensor& seen);

// The k largest of every row of z [B, H, N, S] by sorting it whole, at equal z the lower index:
// [B, H, N, k] i64, ascending, −1 behind the last. Row i of batch item b has the first count(b, i)
// elements.
Tensor largest(const Tensor& z, i64 k, const std::function<i64(i64 b, i64 i)>& count);

// The keys T_i of every query, [B, H, N, k] as largest() gives them.
struct ChosenKeys {
  Tensor index;  // 0 where there is no key
  Tensor there;  // 1, and 0 where there is none

  ChosenKeys(const Tensor& keys, DType type);
  // z_ij for j ∈ T_i: z [B, H, N, S] → [B, H, N, k]; anything where there is no key.
  Variable of(const Variable& z) const;
  // Σ_{j ∈ T_i} a_ij v_j: a [B, H, N, k], v [B, H, S, M] → [B, H, N, M].
  Variable sum(const Variable& a, const Variable& v) const;
};

}  // namespace weft
