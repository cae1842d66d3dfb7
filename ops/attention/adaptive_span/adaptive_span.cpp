// Adaptive span: the op on passes by distance, the definition, decoding and the fact sheet.
// Equations: adaptive_span.h.
#include "ops/attention/adaptive_span/adaptive_span.h"

#include <algorithm>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/distance_attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace weft {
namespace {

i64 max_span(const AttentionSpec& spec) { return spec.integer("max_span"); }

// If a layer is applied several times, its first application adds the penalty.
Variable penalty_of(const AttentionSpec& spec, const AttentionCall& call, const Variable& span) {
  const double factor = spec.number("penalty") * double(max_span(spec));
  return call.depth == 0 && factor > 0 ? scale(mean(span), factor) : Variable();
}

Attended attend_adaptive_span(const AttentionSpec& spec, const AttentionCall& call,
                              std::span<const Variable> inputs) {
  const DistanceCall distances{.name = "adaptive-span",
                               .temperature = temperature_of(spec, inputs[0].size(3)),
                               .lengths = call.lengths,
                               .dropout = call.dropout,
                               .random = call.random,
                               .nearest = 1,
                               .ramp = spec.integer("ramp"),
                               .most = max_span(spec)};
  return {distance_attention(distances, inputs[0], inputs[1], inputs[2],
                             {.table = inputs[4], .spans = inputs[3]}),
          penalty_of(spec, call, inputs[3])};
}

Attended reference_adaptive_span(const AttentionSpec& spec, const AttentionCall& call,
                                 std::span<const Variable> inputs) {
  const Variable &span = inputs[3], &key_pe = inputs[4];
  const Variable q = transpose(inputs[0], 1, 2), k = transpose(inputs[1], 1, 2);
  const i64 B = q.size(0), H = q.size(1), N = q.size(2), S = k.size(2), L = max_span(spec);
  const DType type = q.value().dtype();
  const i64 near = std::min(L, S);  // rows of key_pe that some pair uses
  // δ − 1 of every pair; and the same clamped to 0 … near − 1.
  const Tensor distances = Tensor::empty({1, N, S}, DType::f64);
  const Tensor rows = Tensor::empty({1, 1, N, S}, DType::i64);
  for (i64 i = 0; i < N; ++i) {
    for (i64 j = 0; j < S; ++j) {
      const i64 d = S - N + i - j - 1;
      distances.data<double>()[i * S + j] = double(d);
      rows.data<i64>()[i * S + j] = std::clamp<i64>(d, 0, near - 1);
    }
  }
  Variable z = matmul(q, transpose(k, 2, 3));
  if (key_pe.defined()) {
    const Variable products = matmul(q, transpose(slice(key_pe, 0, 0, near), 0, 1));
    z = add(z, gather(products, 3, rows));
  }
  const Variable far = scale(reshape(span, {H, 1, 1}), double(L));
  const double R = double(spec.integer("ramp"));
  const Variable ramp = add(scale(sub(far, distances.to(type)), 1 / R), Tensor::full({}, 1, type));
  // min(1, max(0, ramp)), whose derivative at its corners is 0.
  const Variable least = Tensor::full({}, -1, type);
  const Variable m = scale(maximum(least, scale(relu(ramp), -1)), -1);
  const Tensor seen = Tensor::zeros({B, H, N, S}, DType::f64);
  const std::vector<double> factors = m.value().to(DType::f64).to_vector<double>();
  for (i64 b = 0; b < B; ++b) {
    const i64 there = length_of(call.lengths, b, N);
    for (i64 pair = 0; pair < H * N * S; ++pair) {
      const i64 i = pair / S % N, d = S - N + i - pair % S - 1;
      const bool visible = i < there && d >= 0 && d < L && factors[std::size_t(pair)] != 0;
      seen.data<double>()[b * H * N * S + pair] = visible ? 1 : 0;
    }
  }
  const Variable a = mul(softmax(masked(scale(z, temperature_of(spec, q.size(3))), seen)), m);
  const Variable sums = add(column(sum(a, -1)), Tensor::full({}, 1e-8, type));
  const Variable w = dropout(div(a, sums), call.dropout, call.random);
  return {transpose(matmul(w, transpose(inputs[2], 1, 2)), 1, 2), penalty_of(spec, call, span)};
}

// The operations are those of spans of max_span with key_pe; the bytes exclude the partial sums of
// its gradient.
AttentionCost cost_adaptive_span(const AttentionSpec& spec, const AttentionSizes& s, bool,
                                 DType type) {
  const double item = double(size_of(type)), heads = double(s.B * s.H);
  const double E = double(s.E), M = double(s.M);
  const double keys = double(std::min(max_span(spec), s.S));
  const double pairs = heads * double(s.N) * keys * (s.N == s.S ? 1 - keys / double(2 * s.S) : 1);
  const double positions = item * heads * double(s.N);
  return {.forward_operations = 2 * pairs * (2 * E + M),
          .backward_operations = 2 * pairs * (6 * E + 2 * M),
          .exponentials = 2 * pairs,
          .saved_bytes = positions,
          .working_bytes = item * ((double(s.N) + 64) * (3 * E + 2 * M + 2) + 128 * (E + M) +
                                   64 * 176 + 3 * (keys + 272)),
          .cuda_working_bytes = positions};
}

// A step looks back as far as the span of each head.
class AdaptiveSpanDecoding final : public OrderedCache {
 public:
  AdaptiveSpanDecoding(const AttentionSpec& spec, const AttentionSizes& sizes, DType type,
                       i64 capacity)
      : OrderedCache(spec, sizes, type, std::min(capacity, max_span(spec) + 1),
                     capacity > max_span(spec)) {}

 private:
  Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v,
                  std::span<const Tensor> others) override {
    std::vector<Variable> inputs{q, k, v};
    for (const Tensor& x : others) {
      if (x.defined()) inputs.push_back(x);
    }
    return attend(spec_, {.causal = true}, inputs).out.value();
  }
};

std::unique_ptr<DecodingState> decode_adaptive_span(const AttentionSpec& spec,
                                                    const AttentionSizes& sizes, DType type,
                                                    i64 capacity) {
  return std::make_unique<AdaptiveSpanDecoding>(spec, sizes, type, capacity);
}

const Registration registered_adaptive_span{Mechanism{
    .name = "adaptive-span",
    .title = "softmax attention whose heads learn how far back they look",
    .paper = "S. Sukhbaatar, E. Grave, P. Bojanowski, A. Joulin, Adaptive attention span in "
             "transformers, ACL 2019, arXiv 1905.07799",
    .equations = "sections 2.1 and 2.2",
    .inputs =
        [](const AttentionSpec& spec, const AttentionSizes& sizes) {
          AttentionInputs inputs = query_key_value(spec, sizes);
          inputs.push_back({.name = "span",
                            .role = Role::parameter,
                            .axes = "H",
                            .weight = {Initializer::zeros},
                            .bounds = {0, 1}});
          inputs.push_back({.name = "key_pe",
                            .role = Role::parameter,
                            .side = Side::reference,
                            .axes = "max_span E",
                            .weight = {Initializer::normal, 1},
                            .optional = true});
          return inputs;
        },
    .options = {{.name = "max_span",
                 .initial = "1024",
                 .help = "L: positions that a head may look back",
                 .least = 1,
                 .most = 1 << 24,
                 .tried = {"9", "150"}},
                {.name = "ramp",
                 .initial = "32",
                 .help = "R: positions over which weights fall to 0",
                 .least = 1,
                 .most = 1 << 24,
                 .tried = {"3"}},
                {.name = "penalty",
                 .initial = "2e-6",
                 .help = "weight of the mean span, in positions, in the loss",
                 .least = 0,
                 .most = 1e9,
                 .whole = false,
                 .tried = {"0.5"}},
                temperature_option()},
    .masks = {.causal = true, .lengths = true},
    .causal_only = true,
    .strictly_causal = true,
    .earlier_keys = true,
    .linear_in_values = true,
    .scaling = "N c",
    .attend = attend_adaptive_span,
    .reference = reference_adaptive_span,
    .cost = cost_adaptive_span,
    .cost_at_most = true,
    .decode = decode_adaptive_span}};

}  // namespace
}  // namespace weft
