// Groups of near queries: random planes hash them, K-means in Hamming space groups the hashes.
// A. Vyas, A. Katharopoulos, F. Fleuret, "Fast transformers with clustered attention", NeurIPS
// 2020, arXiv 2007.04825, section 3.2.2; the rules where the paper is silent are those of its code.
//
// Per batch item and head, query i < L (the item's query length), plane r, cluster c; C, T and bits
// are the options `clusters`, `iterations` and `bits`:
//
//     bit r of h_i = 1  iff  q_i · plane_r > t_r      planes [bits, E + 1], t_r their last column
//     c_c = h_i of i = positions[c]                   positions [C], taken modulo L
//     repeat T times, the last time without the update:
//         g_i = argmin_c popcount(h_i ⊕ c_c)          ties go to the lowest cluster
//         bit r of c_c = 1  iff  among the members of c ones > zeros
//                                                     an empty cluster keeps its code
//
// The loop stops early when an update changes nothing. The planes are drawn from the standard
// normal, for all batch items and heads together; `hash_bias=0` sets every t_r to 0. The positions
// are drawn without replacement from 0 … L − 1 and depend only on L and the key; if C > L they
// repeat, and the later clusters stay empty. None of this has a gradient.
//
// The draws use the call's random key with another stream: the planes stream ⊕ 2³¹, elements 2i and
// 2i + 1 from index i; the positions stream ⊕ 2³⁰, swap i of Fisher and Yates from index i.
// Choices: planes, positions (those of the longest item), labels g and hashes h [B, H, N]; a query
// beyond the length has label 0 and hash 0, and its given label is ignored.
//
// Time 2 N E bits for the hashes and T N C comparisons of words. Codes are words of 32 bits if that
// suffices, otherwise of 64: with codes in the vector lanes one comparison is an exclusive or, a
// population count and a minimum over (distance · 4096 + cluster), which implements the rule for
// ties.
#pragma once

#include "ops/attention/clustered/kernels.h"
#include "ops/attention/scores.h"
#include "runtime/scratch.h"

namespace weft {

inline constexpr i64 most_clusters = 4096;
inline constexpr i64 most_hash_bits = 63;

// The parts of a fact sheet that are common to mechanisms over clusters: clusters, bits,
// iterations, hash_bias and temperature; planes, positions, labels and hashes.
std::vector<OptionSheet> cluster_options();
std::vector<AttentionChoice> cluster_choices();

// The labels [B, H, N] of the queries q [B, N, H, E], of which `lengths` (or all) are valid, given
// by the call or computed by the rule above; reports all choices. i32.
Tensor decide_labels(const AttentionSpec& spec, const AttentionCall& call, const Tensor& lengths,
                     const Tensor& q);
// The same by loops over single bits, for definitions. i64.
Tensor reference_labels(const AttentionSpec& spec, const AttentionCall& call, const Tensor& lengths,
                        const Tensor& q);
// For definitions: the labels as a matrix g [B, H, N, C], 1 if query i belongs to cluster c, so
// that g v gives every member the row of its cluster.
Tensor membership(const Tensor& labels, const Tensor& lengths, i64 clusters, DType type);
// And the means of the members of each cluster, q̄ [B, H, C, E] of q [B, H, N, E]; 0 if it is
// empty.
Variable means_of_members(const Tensor& membership, const Variable& q);

// Multiplications and additions of the hashes, and scratch of the whole.
double hash_operations(const AttentionSpec& spec, const AttentionSizes& sizes);
double cluster_bytes(const AttentionSpec& spec, const AttentionSizes& sizes, DType type);
double cuda_cluster_bytes(const AttentionSpec& spec, const AttentionSizes& sizes, DType type);
// The bytes of the queries sorted by cluster on a CUDA device, with `others` bytes beside them once
// they are sorted.
double cuda_order_bytes(const AttentionSpec& spec, const AttentionSizes& sizes, double others);

// The queries of one batch item and head sorted by cluster, ascending within each. On a CUDA device
// sort_labels() does that for all of them.
class Members {
 public:
  Members(const std::int32_t* labels, i64 count, i64 clusters);
  i64 size(i64 c) const { return begin_[c + 1] - begin_[c]; }
  const std::int32_t* of(i64 c) const { return order_ + begin_[c]; }

 private:
  Scratch<std::int32_t> buffer_;
  std::int32_t *begin_, *order_;
};

// to[e] = factor Σ_i x[b, rows[i], h, e] for i < count, accumulated in f64.
template <class T>
void sum_of_rows(const View<const T, 4>& x, i64 b, i64 h, const std::int32_t* rows, i64 count,
                 double factor, T* to);

}  // namespace weft
