// Improved clustered attention: the op, its definition and both fact sheets. Equations:
// i_clustered.h.
#include "ops/attention/i_clustered/i_clustered.h"

#include <algorithm>

#include "autograd/apply.h"
#include "ops/attention/clustered/clusters.h"
#include "ops/attention/definitions.h"
#include "ops/attention/mechanism.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

// The causal form attends within one sequence: its lengths apply to the queries too.
const Tensor& lengths_of_queries(const AttentionCall& call) {
  return call.causal ? call.lengths : call.query_lengths;
}

bool detaches(const AttentionSpec& spec, const AttentionCall& call) {
  return !call.causal && spec.integer("detach_mass") == 1;
}

struct ImprovedClusteredOp {
  static constexpr const char* name = "i-clustered";
  Tensor lengths, query_lengths;
  i64 clusters = 1;
  double temperature = 1;
  bool causal = false, detach_mass = false;
  double dropout = 0;
  RandomKey random;
  Tensor labels;  // [B, H, N] i32
  Tensor topk;    // [B, H, C, k] i32
  bool decide = true;  // forward computes topk

  struct Saved {
    Tensor q, k, v, out, mass, log_sums;
  };

  template <class T>
  ImprovedClustered<T> problem(const Saved& saved) const {
    return {saved.q.view<const T, 4>(),
            saved.k.view<const T, 4>(),
            saved.v.view<const T, 4>(),
            labels.view<const std::int32_t, 3>(),
            numbers_of(lengths),
            numbers_of(query_lengths),
            clusters,
            topk.size(3),
            static_cast<T>(temperature),
            causal,
            detach_mass,
            dropout,
            random};
  }

  // Views of m and ℓ, which the causal form does not have.
  template <class T>
  static View<T, 3> optional_view(const Tensor& x) {
    return x.defined() ? x.view<T, 3>() : View<T, 3>{};
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v) const {
    const i64 B = q.size(0), N = q.size(1), H = q.size(2), M = v.size(3);
    const auto per_cluster = [&] {
      return causal ? Tensor{} : Tensor::empty({B, H, clusters}, q.dtype(), q.device());
    };
    saved = {q, k, v, Tensor::empty({B, N, H, M}, q.dtype(), q.device()), per_cluster(),
             per_cluster()};
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      ImprovedClusteredKernels<decltype(device), T>::forward(
          device, problem<T>(saved), decide, topk.view<std::int32_t, 4>(),
          optional_view<T>(saved.mass), optional_view<T>(saved.log_sums), saved.out.view<T, 4>());
    });
    return saved.out;
  }

  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dout) const {
    const Tensor dq = Tensor::empty_like(saved.q), dk = Tensor::empty_like(saved.k);
    const Tensor dv = Tensor::empty_like(saved.v);
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      ImprovedClusteredKernels<decltype(device), T>::backward(
          device, problem<T>(saved), topk.view<const std::int32_t, 4>(),
          optional_view<const T>(saved.mass), optional_view<const T>(saved.log_sums),
          saved.out.view<const T, 4>(), dout.view<const T, 4>(), dq.view<T, 4>(), dk.view<T, 4>(),
          dv.view<T, 4>());
    });
    return {dq, dk, dv};
  }
};

Attended attend_i_clustered(const AttentionSpec& spec, const AttentionCall& call,
                            std::span<const Variable> inputs) {
  const Tensor &q = inputs[0].value(), &k = inputs[1].value();
  const i64 C = spec.integer("clusters"), S = k.size(1);
  const Shape shape{q.size(0), q.size(2), C, std::min(spec.integer("topk"), S)};
  const Tensor given = given_choice(spec.mechanism(), call, "topk", shape);
  const Tensor& query_lengths = lengths_of_queries(call);
  const ImprovedClusteredOp op{
      .lengths = call.lengths,
      .query_lengths = query_lengths,
      .clusters = C,
      .temperature = temperature_of(spec, q.size(3)),
      .causal = call.causal,
      .detach_mass = detaches(spec, call),
      .dropout = call.dropout,
      .random = call.random,
      .labels = decide_labels(spec, call, query_lengths, q),
      .topk = given.defined() ? given.to(DType::i32) : Tensor::empty(shape, DType::i32, q.device()),
      .decide = !given.defined()};
  const Variable out = apply(op, inputs[0], inputs[1], inputs[2]);
  if (call.chosen != nullptr) report_choice(call, "topk", op.topk.to(DType::i64));
  return out;
}

// From the keys T [B, H, C, k] of the clusters, those of each query's own cluster: [B, H, N, k]; if
// causal without those after the query.
Tensor keys_of_queries(const AttentionCall& call, const Tensor& labels, const Tensor& topk) {
  const i64 B = labels.size(0), H = labels.size(1), N = labels.size(2);
  const i64 C = topk.size(2), k = topk.size(3);
  const Tensor keys = Tensor::full({B, H, N, k}, -1, DType::i64);
  for (i64 row = 0; row < B * H; ++row) {
    for (i64 i = 0; i < length_of(lengths_of_queries(call), row / H, N); ++i) {
      const i64 cluster = row * C + labels.data<i64>()[row * N + i];
      for (i64 t = 0; t < k; ++t) {
        const i64 key = topk.data<i64>()[cluster * k + t];
        if (!call.causal || key <= i) keys.data<i64>()[(row * N + i) * k + t] = key;
      }
    }
  }
  return keys;
}

// 0 at the keys of T, 1 at the others: [B, H, C, S].
Tensor other_keys(const Tensor& topk, i64 S, DType type) {
  const Tensor others = Tensor::full({topk.size(0), topk.size(1), topk.size(2), S}, 1, DType::f64);
  for (i64 i = 0; i < topk.count(); ++i) {
    const i64 key = topk.data<i64>()[i];
    if (key >= 0) others.data<double>()[i / topk.size(3) * S + key] = 0;
  }
  return others.to(type);
}

// The definition.
Attended reference_i_clustered(const AttentionSpec& spec, const AttentionCall& call,
                               std::span<const Variable> inputs) {
  const Variable q = transpose(inputs[0], 1, 2);  // [B, H, N, E]
  const Variable k = transpose(inputs[1], 1, 2);  // [B, H, S, E]
  const Variable v = transpose(inputs[2], 1, 2);  // [B, H, S, M]
  const i64 B = q.size(0), C = spec.integer("clusters"), S = k.size(2);
  const DType type = q.value().dtype();
  const double temperature = temperature_of(spec, q.size(3));
  const Tensor& query_lengths = lengths_of_queries(call);
  const Tensor labels = reference_labels(spec, call, query_lengths, inputs[0].value());
  const Tensor g = membership(labels, query_lengths, C, type);
  const Variable means = means_of_members(g, q);
  const Variable of_means = scale(matmul(means, transpose(k, 2, 3)), temperature);
  const i64 width = std::min(spec.integer("topk"), S);
  Tensor topk = given_choice(spec.mechanism(), call, "topk", {B, q.size(1), C, width});
  if (!topk.defined()) {
    const auto keys = [&](i64 b, i64) { return length_of(call.lengths, b, S); };
    topk = largest(of_means.value(), width, keys);
  }
  const ChosenKeys own(keys_of_queries(call, labels, topk), type);
  const Variable scores = scale(matmul(q, transpose(k, 2, 3)), temperature);
  const Variable p = softmax(masked(own.of(scores), own.there));
  const Variable kept = dropout(p, call.dropout, call.random);
  if (call.causal) return transpose(own.sum(kept, v), 1, 2);

  AttentionCall keys;
  keys.lengths = call.lengths;
  const Variable a = softmax(masked(of_means, visibility(keys, B, C, S)));
  const ChosenKeys chosen(topk, type);
  const Variable mass = sum(mul(chosen.of(a), chosen.there), 3);  // m, [B, H, C]
  const Variable given = detaches(spec, call) ? mass.detached() : mass;
  const Variable off = mul(a, other_keys(topk, S, type));
  const RandomKey random = call.random.further(DrawPurpose::bottom_dropout);
  const Variable bottom = matmul(dropout(off, call.dropout, random), v);  // b, [B, H, C, M]
  const Variable top = own.sum(mul(matmul(g, column(given)), kept), v);
  return transpose(add(top, matmul(g, bottom)), 1, 2);
}

AttentionCost cost_of(const AttentionSpec& spec, const AttentionSizes& s, bool, DType type) {
  const bool causal = spec.mechanism().causal_only;
  const double heads = double(s.B * s.H), C = spec.number("clusters"), item = double(size_of(type));
  const double N = double(s.N), S = double(s.S), E = double(s.E), M = double(s.M);
  const double k = std::min(spec.number("topk"), S), pairs = heads * C * S, top = heads * N * k;
  const double lanes = std::min(std::max(C, 8.0), 128.0), width = std::max(k, 8.0);
  const double both = lanes * (2 * E + 64) + 64 * (E + M) + width * (2 * E + M + 65) + 64 * E;
  const double members = 4 * (N + C);
  // Forward scratch is reported net of the gradient buffers, which do not exist yet.
  const double results = item * heads * (N * E + S * (E + M));
  const double forward =
      members + item * (both + lanes * (M + 3 + 4 * k) + 65 * M) + 4 * lanes;
  const double backward = members + item * (both + width * (2 * M + E + 64) + 64 * (M + E) +
                                            lanes * (2 * M + E + 66)) + 4 * lanes;
  const double most_forward = std::max(forward, cluster_bytes(spec, s, type));
  const double of_means = causal ? E : E + M, of_gradients = causal ? 0 : C * (2 * E + M + 2);
  const double cuda_forward = std::max(cuda_order_bytes(spec, s, item * heads * C * of_means),
                                       cuda_cluster_bytes(spec, s, type));
  const double cuda_backward = cuda_order_bytes(spec, s, item * heads * (2 * N + of_gradients));
  return {.forward_operations = hash_operations(spec, s) + 2 * pairs * (causal ? E : E + M) +
                                2 * top * (E + M),
          .backward_operations = (causal ? 0 : pairs * (6 * E + 4 * M)) + top * (6 * E + 4 * M),
          .exponentials = (causal ? 0 : 2 * pairs) + 2 * top,
          .saved_bytes = 4 * heads * (N + C * k) + (causal ? 0 : 2 * item * heads * C),
          .working_bytes = std::max(backward, most_forward - results),
          .cuda_working_bytes = std::max(cuda_backward, cuda_forward - results)};
}

std::vector<OptionSheet> options_of(bool causal) {
  std::vector<OptionSheet> options = cluster_options();
  options.push_back(
      {.name = "topk",
       .initial = "32",
       .help = "number of keys to which each member of a cluster attends with its own scores",
       .least = 1,
       .most = 4096,
       .tried = {"1", "5"}});
  if (causal) return options;
  options.push_back(flag_option(
      "detach_mass", false, "1: no gradient through the mass on these keys, as the released code"));
  return options;
}

std::vector<AttentionChoice> choices_of_both() {
  std::vector<AttentionChoice> choices = cluster_choices();
  choices.push_back({.name = "topk",
                     .shape = "B H C k",
                     .sizes =
                         [](const AttentionSpec& spec, const AttentionSizes& s) {
                           const i64 kept = std::min(spec.integer("topk"), s.S);
                           return Shape{s.B, s.H, spec.integer("clusters"), kept};
                         },
                     .values =
                         [](const ChoicePlace& at) {
                           return length_of(at.call.lengths, at.place[0], at.sizes.S);
                         },
                     .order = ChoiceOrder::ascending});
  return choices;
}

Mechanism sheet(bool causal) {
  Mechanism common{
      .name = "i-clustered",
      .title = "clustered attention, with the members' own scores on the keys of largest weight",
      .paper = "A. Vyas, A. Katharopoulos, F. Fleuret, Fast transformers with clustered attention, "
               "NeurIPS 2020, arXiv 2007.04825",
      .equations = "section 3.3, eqs. 9-11",
      .page = "i_clustered",
      .inputs = query_key_value,
      .choices = choices_of_both(),
      .options = options_of(causal),
      .masks = {.lengths = true, .query_lengths = true},
      .cross = true,
      .unordered_keys = true,
      .linear_in_values = true,
      .row_sums = RowSums::one,
      .scaling = "N",
      .attend = attend_i_clustered,
      .reference = reference_i_clustered,
      .cost = cost_of};
  if (!causal) return common;
  common.name = "i-clustered-causal";
  common.title = "past keys among those of largest weight for a cluster; NOT strictly causal: the "
                 "future leaks through what is selected";
  common.equations = "not in the paper; its code's causal form of section 3.3";
  common.masks = {.causal = true, .lengths = true};
  common.cross = false;
  common.causal_only = true;
  common.unordered_keys = false;
  common.row_sums = RowSums::any;
  return common;
}

const Registration registered_i_clustered{sheet(false)};
const Registration registered_i_clustered_causal{sheet(true)};

}  // namespace
}  // namespace weft
