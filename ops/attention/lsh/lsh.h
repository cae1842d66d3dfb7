// LSH attention: attention inside chunks of a list that is sorted by random hashes.
// N. Kitaev, L. Kaiser, A. Levskaya, "Reformer: the efficient transformer", ICLR 2020, arXiv
// 2001.04451, section 2; the options' defaults are those of A. Vyas, A. Katharopoulos, F.
// Fleuret, "Fast transformers with clustered attention", NeurIPS 2020, arXiv 2007.04825, which
// names no number of buckets (their released class has 16, its builder 126; here 64).
//
// For long sequences in which a query has few keys of large weight: vectors at a small angle often
// have the same hash, so a list sorted by hashes has them side by side, and attention runs inside
// chunks of it. Time is that of a sort, and linear in the length for all else. Given up are keys of
// their own, since one vector must be query and key, and every pair that no round places together.
//
// The form of the paper. k_j = q_j / ‖q_j‖, and 0 where q_j = 0. In each round r of R, with planes
// P^r [buckets/2, E] of standard normal numbers, the same for all batch items and heads, and with
// chunks of c positions (the option `chunk`):
//
//     bucket^r(i) = argmax of [P^r q_i ; −P^r q_i]              the lowest index at ties
//     list^r      = positions sorted by (bucket^r, position), cut into chunks of c
//     C^r_i       = own chunk, and the chunk before it; before the first of each round
//                   the last of the round before it, before that of round 1 that of round R
//
//     z_ij = τ q_i · k_j − log n_ij                      −∞ if bucket^r(i) ≠ bucket^r(j)
//     ℓ^r_i = log Σ_{j ∈ C^r_i} exp z_ij,   a^r_ij = exp(z_ij − ℓ^r_i),   o^r_i = Σ_j d a^r_ij v_j
//     out_i = Σ_r w^r_i o^r_i,   w^r_i = exp(ℓ^r_i − L_i),   L_i = log Σ_r exp ℓ^r_i
//
//     q [B, N, H, E]   v [B, N, H, M]   out [B, N, H, M]
//
// n_ij is in how many places of all rounds i sees j, so that each key counts once. A query sees
// itself only where it sees nothing else in any round, with z_ii = 0. The last chunk may be short.
// d is the dropout mask, 0 or 1/(1 − rate), drawn for each rank in list^r and each place of C^r_i,
// so that a key in two places has two draws. τ is the option `temperature`, 1/√E unless given.
//
// Masks: causal, z_ij = −∞ where j > i; lengths, positions at and past which are not in the list. A
// query that sees nothing gives 0. With causal, no value of the future reaches an output, but the
// chunk of a position depends on the whole sequence.
//
// Backward. Buckets, lists and n_ij have no gradient. Since w^r_i a^r_ij = exp(z_ij − L_i), out is
// one softmax over all places of all rounds, and with g_ij = d do_i · v_j its derivative is that of
// full attention:
//
//     dz^r_ij = exp(z_ij − L_i) (g_ij − do_i · out_i)    dv_j = Σ d exp(z_ij − L_i) do_i
//     dq_i = τ Σ dz_ij k_j + (dk_i − k_i (k_i · dk_i)) / ‖q_i‖,   dk_j = τ Σ dz_ij q_i
//
// summed over rounds and places, and dz_ii = 0 where z_ii is a constant. The second term of dq is
// the derivative of k_i = q_i / ‖q_i‖; it is 0 if q_i = 0.
//
// Options. The form above is combine=logsumexp, wrap=1, self=last, across_buckets=0,
// duplicates=correct. The defaults are the rules that Vyas et al. measured as lsh-R (R: the option
// `rounds`):
//
//     combine=mean        out_i = Σ_r o^r_i / R
//     wrap=0              nothing comes before the first chunk
//     self=allow          z_ii as any other; with exclude −∞
//     across_buckets=1    keys of other buckets in C^r_i are seen
//     duplicates=count    no n_ij: keys seen in several rounds count in each
//     normalize_keys=0    k_j = q_j, and dq_i = τ Σ dz_ij k_j + dk_i           not the default
//
// With self=last and combine=mean a query sees itself where it sees nothing else in that round.
// With wrap=1 all rounds make one ring, and a key may be in C^r_i twice. For the mean each round is
// a softmax of its own, with δ^r_i = Σ_j a^r_ij g_ij:
//
//     dz^r_ij = a^r_ij (g_ij − δ^r_i) / R                dv_j = Σ d a^r_ij do_i / R
//
// Saved: buckets in 32 bits [R, B, H, N], from which a stable sort rebuilds the lists, and ℓ^r
// [B, H, R, N], or L [B, H, 1, N] for logsumexp, with self=last also whether i sees others,
// [B, H, 2, N]; q, v and out as handles. Time a head, with P = 2 c R N pairs: R N E · buckets
// operations for the hashes and 2 P (E + M) forward, P (6 E + 4 M) backward, and R sorts in each
// direction.
//
// Read next: ops/attention/shared_full/shared_full.h (without hashes); lsh.cpp; rounds.h;
// lsh_cpu.cpp.
#pragma once

#include "ops/attention/length.h"
#include "ops/dropout/mask.h"
#include "runtime/device.h"
#include "runtime/view.h"

namespace weft {

enum class LshSelf { allow, exclude, last };

struct LshRules {
  i64 rounds = 4, chunk = 32, buckets = 64;
  bool logsumexp = false, wrap = false, across_buckets = true, correct = false, normalize = true;
  LshSelf self = LshSelf::allow;

  constexpr bool marks_others() const { return logsumexp && self == LshSelf::last; }
  // The number of saved values of each position.
  constexpr i64 kept() const { return !logsumexp ? rounds : marks_others() ? 2 : 1; }
};

// The call in kernels. `lengths` holds B numbers or is null; buckets [R, B, H, N] is packed.
template <class T>
struct Lsh {
  View<const T, 4> q, v;
  const i64* lengths = nullptr;
  const std::int32_t* buckets = nullptr;
  LshRules rules;
  T temperature = 1;
  bool causal = false;
  double dropout = 0;
  RandomKey random = {};

  constexpr i64 B() const { return q.size(0); }
  constexpr i64 N() const { return q.size(1); }
  constexpr i64 H() const { return q.size(2); }
  constexpr i64 E() const { return q.size(3); }
  constexpr i64 M() const { return v.size(3); }
  constexpr i64 length(i64 b) const { return length_of(lengths, b, N()); }
  // For a sequence of `length` positions.
  constexpr i64 chunk(i64 length) const { return rules.chunk < length ? rules.chunk : length; }
  DropoutMask mask() const {
    return DropoutMask(random, dropout, 2 * chunk(N()), H() * rules.rounds * N());
  }
  constexpr const std::int32_t* buckets_of(i64 r, i64 b, i64 h) const {
    return buckets + ((r * B() + b) * H() + h) * N();
  }
};

template <class Device, class T>
struct LshHashKernels {
  // buckets [R, B, H, N] from planes [R · buckets/2, E], both packed; 0 at and beyond the lengths.
  static void hash(const Device&, const Lsh<T>&, const T* planes, std::int32_t* buckets);
};

template <class Device, class T>
struct LshKernels {
  // Writes all of out and log_sums [B, H, kept(), N]; a log_sum is +∞ if nothing is seen.
  static void forward(const Device&, const Lsh<T>&, View<T, 4> out, View<T, 4> log_sums);
};

template <class Device, class T>
struct LshBackwardKernels {
  // Writes all of dq and dv.
  static void backward(const Device&, const Lsh<T>&, View<const T, 4> out,
                       View<const T, 4> log_sums, View<const T, 4> dout, View<T, 4> dq,
                       View<T, 4> dv);
};

}  // namespace weft
