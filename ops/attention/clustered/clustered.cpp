// Clustered attention: the op, its definition and the fact sheet. Equations: clustered.h.
#include "ops/attention/clustered/clustered.h"

#include <algorithm>
#include <cmath>

#include "autograd/apply.h"
#include "ops/attention/clustered/clusters.h"
#include "ops/attention/definitions.h"
#include "ops/attention/mechanism.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

struct ClusteredOp {
  static constexpr const char* name = "clustered";
  Tensor lengths, query_lengths;
  double dropout = 0;
  RandomKey random;
  double temperature = 1;
  i64 clusters = 1;
  Tensor labels;  // [B, H, N] i32

  struct Saved {
    Tensor q, k, v, out, log_sums;
  };

  template <class T>
  ClusteredAttention<T> problem(const Saved& saved) const {
    return {saved.q.view<const T, 4>(),
            saved.k.view<const T, 4>(),
            saved.v.view<const T, 4>(),
            labels.view<const std::int32_t, 3>(),
            numbers_of(lengths),
            numbers_of(query_lengths),
            clusters,
            static_cast<T>(temperature),
            dropout,
            random};
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v) const {
    const i64 B = q.size(0), N = q.size(1), H = q.size(2), M = v.size(3);
    saved = {q, k, v, Tensor::empty({B, N, H, M}, q.dtype(), q.device()),
             Tensor::empty({B, H, clusters}, q.dtype(), q.device())};
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      ClusteredKernels<decltype(device), T>::forward(
          device, problem<T>(saved), saved.out.view<T, 4>(), saved.log_sums.view<T, 3>());
    });
    return saved.out;
  }

  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dout) const {
    const Tensor dq = Tensor::empty_like(saved.q), dk = Tensor::empty_like(saved.k);
    const Tensor dv = Tensor::empty_like(saved.v);
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      ClusteredKernels<decltype(device), T>::backward(
          device, problem<T>(saved), saved.out.view<const T, 4>(),
          saved.log_sums.view<const T, 3>(), dout.view<const T, 4>(), dq.view<T, 4>(),
          dk.view<T, 4>(), dv.view<T, 4>());
    });
    return {dq, dk, dv};
  }
};

Attended attend_clustered(const AttentionSpec& spec, const AttentionCall& call,
                          std::span<const Variable> inputs) {
  const Tensor& q = inputs[0].value();
  const ClusteredOp op{call.lengths, call.query_lengths, call.dropout, call.random,
                       temperature_of(spec, q.size(3)), spec.integer("clusters"),
                       decide_labels(spec, call, call.query_lengths, q)};
  return apply(op, inputs[0], inputs[1], inputs[2]);
}

// The definition: the labels as a matrix of zeros and ones [N, C].
Attended reference_clustered(const AttentionSpec& spec, const AttentionCall& call,
                             std::span<const Variable> inputs) {
  const Variable q = transpose(inputs[0], 1, 2);  // [B, H, N, E]
  const Variable k = transpose(inputs[1], 1, 2);  // [B, H, S, E]
  const Variable v = transpose(inputs[2], 1, 2);  // [B, H, S, M]
  const i64 C = spec.integer("clusters");
  const Tensor labels = reference_labels(spec, call, call.query_lengths, inputs[0].value());
  const Tensor g = membership(labels, call.query_lengths, C, q.value().dtype());
  const Variable centroids = means_of_members(g, q);
  const Variable z =
      scale(matmul(centroids, transpose(k, 2, 3)), temperature_of(spec, q.size(3)));
  AttentionCall keys;
  keys.lengths = call.lengths;
  const Variable a = softmax(masked(z, visibility(keys, q.size(0), C, k.size(2))));
  const Variable values = matmul(dropout(a, call.dropout, call.random), v);
  return transpose(matmul(g, values), 1, 2);
}

AttentionCost cost_clustered(const AttentionSpec& spec, const AttentionSizes& s, bool, DType type) {
  const double heads = double(s.B * s.H), C = spec.number("clusters");
  const double N = double(s.N), S = double(s.S), E = double(s.E), M = double(s.M);
  const double pairs = heads * C * S, rows = heads * N * (E + M), item = double(size_of(type));
  const double block = C <= 256 ? 32 : 64;  // of queries, in full attention
  // Forward scratch is reported net of the gradient buffers, which do not exist yet.
  const double results = item * heads * (N * E + S * (E + M));
  const double forward = item * (heads * C * (E + M) + S * (E + M) + block * (2 * E + M + 66));
  const double backward = item * (2 * heads * C * (E + M) + 128 * (E + M + block) +
                                  std::ceil(C / block) * block * (3 * E + 2 * M + 2));
  const double most_forward = std::max(forward, cluster_bytes(spec, s, type));
  const double cuda_forward = std::max(cuda_order_bytes(spec, s, item * heads * C * (E + M)),
                                       cuda_cluster_bytes(spec, s, type));
  const double cuda_backward = cuda_order_bytes(spec, s, item * heads * C * (2 * E + 2 * M + 1));
  return {.forward_operations = hash_operations(spec, s) + 2 * pairs * (E + M) + rows,
          .backward_operations = pairs * (6 * E + 4 * M) + 2 * rows,
          .exponentials = 2 * pairs,
          .saved_bytes = 4 * heads * N + item * heads * C,
          .working_bytes = std::max(backward, most_forward - results),
          .cuda_working_bytes = std::max(cuda_backward, cuda_forward - results)};
}

const Registration registered_clustered{Mechanism{
    .name = "clustered",
    .title = "softmax attention of the means of clusters of queries, the same for all members",
    .paper = "A. Vyas, A. Katharopoulos, F. Fleuret, Fast transformers with clustered attention, "
             "NeurIPS 2020, arXiv 2007.04825",
    .equations = "section 3.2, eqs. 3-6",
    .inputs = query_key_value,
    .choices = cluster_choices(),
    .options = cluster_options(),
    .masks = {.lengths = true, .query_lengths = true},
    .cross = true,
    .unordered_keys = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .scaling = "N",
    .attend = attend_clustered,
    .reference = reference_clustered,
    .cost = cost_clustered}};

}  // namespace
}  // namespace weft
