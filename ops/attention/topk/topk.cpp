// Attention to the k largest keys: the op, its definition and the fact sheet. Equations: topk.h.
#include "ops/attention/topk/topk.h"

#include <algorithm>

#include "autograd/apply.h"
#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

struct TopkOp {
  static constexpr const char* name = "topk";
  AttentionCall call;
  double temperature = 1;
  Tensor given;          // [B, H, N, k] i32, checked, or undefined
  i64 kept = 1;          // min(k, S)

  struct Saved {
    Tensor q, k, v, topk, log_sums;
  };

  template <class T>
  TopkAttention<T> problem(const Saved& saved) const {
    return {saved.q.view<const T, 4>(),     saved.k.view<const T, 4>(),
            saved.v.view<const T, 4>(),     numbers_of(call.lengths),
            numbers_of(call.query_lengths),    static_cast<T>(temperature),
            call.causal,                    call.dropout,
            call.random};
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v) const {
    const i64 B = q.size(0), N = q.size(1), H = q.size(2);
    const Tensor out = Tensor::empty({B, N, H, v.size(3)}, q.dtype(), q.device());
    saved = {q, k, v, given, Tensor::empty({B, H, N}, q.dtype(), q.device())};
    if (!given.defined()) saved.topk = Tensor::empty({B, H, N, kept}, DType::i32, q.device());
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      const TopkAttention<T> p = problem<T>(saved);
      if (!given.defined()) {
        const View<std::int32_t, 4> topk = saved.topk.view<std::int32_t, 4>();
        TopkSelectKernels<decltype(device), T>::select(device, p, topk);
      }
      TopkKernels<decltype(device), T>::forward(device, p, saved.topk.view<const std::int32_t, 4>(),
                                                out.view<T, 4>(), saved.log_sums.view<T, 3>());
    });
    if (call.chosen != nullptr) report_choice(call, "topk", saved.topk.to(DType::i64));
    return out;
  }

  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dout) const {
    const Tensor dq = Tensor::empty_like(saved.q), dk = Tensor::empty_like(saved.k);
    const Tensor dv = Tensor::empty_like(saved.v);
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      TopkKernels<decltype(device), T>::backward(
          device, problem<T>(saved), saved.topk.view<const std::int32_t, 4>(),
          saved.log_sums.view<const T, 3>(), dout.view<const T, 4>(), dq.view<T, 4>(),
          dk.view<T, 4>(), dv.view<T, 4>());
    });
    return {dq, dk, dv};
  }
};

// The number of keys that query i of batch item b sees, from the first one on.
i64 seen_keys(const AttentionCall& call, i64 S, i64 b, i64 i) {
  if (i >= length_of(call.query_lengths, b, i + 1)) return 0;
  const i64 keys = length_of(call.lengths, b, S);
  return call.causal ? std::min(keys, i + 1) : keys;
}

i64 kept_keys(const AttentionSpec& spec, i64 S) { return std::min(spec.integer("topk"), S); }

Attended attend_topk(const AttentionSpec& spec, const AttentionCall& call,
                     std::span<const Variable> inputs) {
  const Variable& q = inputs[0];
  const i64 S = inputs[1].size(1), kept = kept_keys(spec, S);
  const Shape shape{q.size(0), q.size(2), q.size(1), kept};
  Tensor given = given_choice(spec.mechanism(), call, "topk", shape);
  if (given.defined()) given = given.to(DType::i32);
  return apply(TopkOp{call, temperature_of(spec, q.size(3)), given, kept}, q, inputs[1], inputs[2]);
}

// The definition.
Attended reference_topk(const AttentionSpec& spec, const AttentionCall& call,
                        std::span<const Variable> inputs) {
  const Variable q = transpose(inputs[0], 1, 2);  // [B, H, N, E]
  const Variable k = transpose(inputs[1], 1, 2);  // [B, H, S, E]
  const Variable v = transpose(inputs[2], 1, 2);  // [B, H, S, M]
  const i64 S = k.size(2), kept = kept_keys(spec, S);
  const Variable z = matmul(q, transpose(k, 2, 3));
  const Shape shape{q.size(0), q.size(1), q.size(2), kept};
  Tensor topk = given_choice(spec.mechanism(), call, "topk", shape);
  if (!topk.defined()) {
    topk = largest(z.value(), kept, [&](i64 b, i64 i) { return seen_keys(call, S, b, i); });
  }
  const ChosenKeys chosen(topk, q.value().dtype());
  const Variable scaled = scale(chosen.of(z), temperature_of(spec, q.size(3)));
  const Variable a = softmax(masked(scaled, chosen.there));
  return transpose(chosen.sum(dropout(a, call.dropout, call.random), v), 1, 2);
}

AttentionCost cost_topk(const AttentionSpec& spec, const AttentionSizes& s, bool causal,
                        DType type) {
  const double heads = double(s.B * s.H), item = double(size_of(type));
  const double E = double(s.E), M = double(s.M);
  const i64 k = kept_keys(spec, s.S);
  const auto pairs = [&](const Band& band) { return heads * pairs_of({band}, s.N, s.S); };
  const double scored = pairs(causal ? Band::causal() : Band::all());
  // As many keys as those before, or k; a causal query may leave places empty.
  const double places = pairs({.end = {.offset = k}});
  const double kept = causal ? pairs(Band::window(k - 1, 0)) : places;
  return {.forward_operations = 2 * scored * E + 2 * kept * (E + M),
          .backward_operations = 2 * kept * (3 * E + 2 * M),
          .exponentials = 2 * kept,
          .saved_bytes = 4 * places + heads * double(s.N) * item,
          .working_bytes = item * 2 * double(s.S) * (E + M),
          .cuda_working_bytes = item * 2 * places};
}

const Registration registered_topk{Mechanism{
    .name = "topk",
    .title = "softmax attention over the k largest keys of each query (oracle-top)",
    .paper = "A. Vyas, A. Katharopoulos, F. Fleuret, Fast transformers with clustered attention, "
             "NeurIPS 2020, arXiv 2007.04825",
    .equations = "section 4.1",
    .inputs = query_key_value,
    .choices = {{.name = "topk",
                 .shape = "B H N topk",
                 .sizes =
                     [](const AttentionSpec& spec, const AttentionSizes& s) {
                       return Shape{s.B, s.H, s.N, kept_keys(spec, s.S)};
                     },
                 .values =
                     [](const ChoicePlace& at) {
                       return seen_keys(at.call, at.sizes.S, at.place[0], at.place[2]);
                     },
                 .order = ChoiceOrder::ascending}},
    .options = {{.name = "topk",
                 .initial = "32",
                 .help = "keys that a query keeps",
                 .least = 1,
                 .most = 4096,
                 .tried = {"1", "3"}},
                temperature_option()},
    .masks = {.causal = true, .lengths = true, .query_lengths = true},
    .cross = true,
    .strictly_causal = true,
    .unordered_keys = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .scaling = "N S",
    .memory = "N k",
    .attend = attend_topk,
    .reference = reference_topk,
    .cost = cost_topk,
    .decode = decode_by_cache}};

}  // namespace
}  // namespace weft
