// Transformer-XL: the op on passes by distance, the definition, decoding and the fact sheet.
// Equations: transformer_xl.h.
#include "ops/attention/transformer_xl/transformer_xl.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/distance_attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/rotary/rotary.h"
#include "ops/views/views.h"

namespace weft {
namespace {

i64 position_width(const AttentionSpec& spec, const AttentionSizes& sizes) {
  const i64 asked = spec.integer("position_width");
  return asked == 0 ? (sizes.H * sizes.E + 1) / 2 * 2 : asked;
}

// The number of different rows of ρ.
i64 distance_rows(const AttentionSpec& spec, i64 S) {
  const i64 clamp = spec.integer("clamp");
  return clamp == 0 ? S : std::min(S, clamp + 1);
}

// [sin(δ f) ; cos(δ f)] for δ = 0 … rows − 1: [rows, D]. Rotated by δ f, (1, 0) is (cos, sin).
Variable sinusoids(i64 rows, i64 D, const Tensor& like) {
  const Shape half{1, rows, 1, D / 2, 1};
  const Variable axes[] = {Tensor::full(half, 1, like.dtype(), like.device()),
                           Tensor::full(half, 0, like.dtype(), like.device())};
  const Variable turned =
      reshape(rotary(reshape(concatenate(axes, 4), {1, rows, 1, D})), {rows, D / 2, 2});
  const Variable parts[] = {slice(turned, 2, 1, 2), slice(turned, 2, 0, 1)};
  return reshape(concatenate(parts, 1), {rows, D});
}

// r [H, S, E] and c [H, S] of the page.
ByDistance by_distance(const AttentionSpec& spec, i64 S, const Variable& w_r, const Variable& u,
                       const Variable& v) {
  const i64 D = w_r.size(0), H = w_r.size(1), E = w_r.size(2), rows = distance_rows(spec, S);
  require(D % 2 == 0, "transformer-xl: position_width must be even, got {}", D);
  Variable r = matmul(sinusoids(rows, D, w_r.value()), reshape(w_r, {D, H * E}));
  r = transpose(reshape(r, {rows, H, E}), 0, 1);
  if (rows < S) {
    const Variable parts[] = {r, expand(slice(r, 1, rows - 1, rows), {H, S - rows, E})};
    r = concatenate(parts, 1);
  }
  return {.table = r, .bias = reshape(matmul(r, reshape(sub(v, u), {H, E, 1})), {H, S})};
}

DistanceCall distances_of(const AttentionSpec& spec, const AttentionCall& call, i64 E, i64 S) {
  return {.name = "transformer-xl",
          .temperature = temperature_of(spec, E),
          .lengths = call.lengths,
          .dropout = call.dropout,
          .random = call.random,
          .most = S};
}

Attended attend_transformer_xl(const AttentionSpec& spec, const AttentionCall& call,
                               std::span<const Variable> inputs) {
  const Variable &q = inputs[0], &k = inputs[1], &w_r = inputs[3], &u = inputs[4], &v = inputs[5];
  const i64 S = k.size(1);
  return distance_attention(distances_of(spec, call, q.size(3), S), add(q, u), k, inputs[2],
                            by_distance(spec, S, w_r, u, v));
}

Attended reference_transformer_xl(const AttentionSpec& spec, const AttentionCall& call,
                                  std::span<const Variable> inputs) {
  const Variable &q = inputs[0], &k = inputs[1], &w_r = inputs[3], &u = inputs[4], &v = inputs[5];
  const i64 B = q.size(0), N = q.size(1), H = q.size(2), E = q.size(3), S = k.size(1);
  const i64 D = w_r.size(0), clamp = spec.integer("clamp");
  const Tensor rho = Tensor::empty({S, D}, DType::f64);
  for (i64 place = 0; place < S * D / 2; ++place) {
    const i64 row = place / (D / 2), c = place % (D / 2);
    const double f = std::pow(10000.0, -2 * double(c) / double(D));
    const double angle = double(clamp == 0 ? row : std::min(row, clamp)) * f;
    rho.data<double>()[row * D + c] = std::sin(angle);
    rho.data<double>()[row * D + D / 2 + c] = std::cos(angle);
  }
  const Tensor seen = Tensor::zeros({B, 1, N, S}, DType::f64);
  const Tensor rows = Tensor::zeros({1, 1, N, S}, DType::i64);
  for (i64 i = 0; i < N; ++i) {
    for (i64 j = 0; j <= S - N + i; ++j) {
      rows.data<i64>()[i * S + j] = S - N + i - j;
      for (i64 b = 0; b < B; ++b) {
        const bool there = i < length_of(call.lengths, b, N) && j < length_of(call.lengths, b, S);
        seen.data<double>()[(b * N + i) * S + j] = there ? 1 : 0;
      }
    }
  }
  const Variable r = reshape(matmul(rho.to(w_r.value().dtype()), reshape(w_r, {D, H * E})),
                             {S, H, E});  // [S, H, E] to [H, E, S]
  const Variable by_row = matmul(transpose(add(q, v), 1, 2), transpose(transpose(r, 0, 1), 1, 2));
  const double temperature = temperature_of(spec, E);
  return attention_over(seen, temperature, call, add(q, u), k, inputs[2],
                        scale(gather(by_row, 3, rows), temperature));
}

// The bytes contain ρ, r, c and the gradients of the last two, and the sum q + u.
AttentionCost cost_transformer_xl(const AttentionSpec& spec, const AttentionSizes& s, bool,
                                  DType type) {
  const double item = double(size_of(type)), heads = double(s.B * s.H);
  const double E = double(s.E), M = double(s.M), N = double(s.N), S = double(s.S);
  const double pairs = heads * N * (S - N / 2), positions = heads * N;
  const double table = double(s.H) * S * E, D = double(position_width(spec, s));
  const double rows = double(distance_rows(spec, s.S));
  return {.forward_operations = 2 * pairs * (2 * E + M) + 2 * table * D,
          .backward_operations = 2 * pairs * (6 * E + 2 * M) + 2 * table * D,
          .exponentials = 2 * pairs,
          .saved_bytes = item * (positions * (E + 1) + table * (1 + 1 / E) + rows * D),
          .working_bytes =
              item * ((N + 64) * (3 * E + 2 * M + 2) + 128 * (E + M) + 64 * 176 +
                      (heads + 2) * S * (E + 1) + 2 * S * D + positions * E + 3 * (S + 272)),
          .cuda_working_bytes = item * (positions + (heads + double(s.H)) * S * (E + 1))};
}

// Caches r and c for the distances so far, with room for as many again.
class TransformerXlDecoding final : public OrderedCache {
 public:
  TransformerXlDecoding(const AttentionSpec& spec, const AttentionSizes& sizes, DType type,
                        i64 capacity)
      : OrderedCache(spec, sizes, type, capacity, false) {}

 private:
  Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v,
                  std::span<const Tensor> others) override {
    const i64 S = k.size(1);
    if (!by_.table.defined() || by_.table.size(1) < S) {
      by_ =
          by_distance(spec_, std::max(S, std::min(2 * S, kept_)), others[0], others[1], others[2]);
    }
    return distance_attention(
               distances_of(spec_, {}, q.size(3), S), add(q, others[1]), k, v,
               {.table = slice(by_.table, 1, 0, S), .bias = slice(by_.bias, 1, 0, S)})
        .value();
  }

  ByDistance by_;
};

std::unique_ptr<DecodingState> decode_transformer_xl(const AttentionSpec& spec,
                                                     const AttentionSizes& sizes, DType type,
                                                     i64 capacity) {
  return std::make_unique<TransformerXlDecoding>(spec, sizes, type, capacity);
}

const Registration registered_transformer_xl{Mechanism{
    .name = "transformer-xl",
    .title = "softmax attention whose scores know the distance, over a memory and the sequence",
    .paper = "Z. Dai, Z. Yang, Y. Yang, J. Carbonell, Q. V. Le, R. Salakhutdinov, Transformer-XL: "
             "attentive language models beyond a fixed-length context, ACL 2019, arXiv 1901.02860",
    .equations = "section 3.3",
    .inputs =
        [](const AttentionSpec& spec, const AttentionSizes& sizes) {
          AttentionInputs inputs = query_key_value(spec, sizes);
          const i64 D = position_width(spec, sizes), H = sizes.H, E = sizes.E;
          const Initializer small{Initializer::normal, 0.02};
          inputs.push_back(learnt("w_r", "position_width H E", {D, H, E}, small));
          inputs.push_back(learnt("pos_bias_u", "H E", {H, E}, small));
          inputs.push_back(learnt("pos_bias_v", "H E", {H, E}, small));
          return inputs;
        },
    .options = {{.name = "clamp",
                 .initial = "0",
                 .help = "largest distance: larger ones count as this one; 0: no limit",
                 .least = 0,
                 .most = 1 << 30,
                 .tried = {"6"}},
                {.name = "position_width",
                 .initial = "0",
                 .help = "D: sines and cosines of a distance, even; 0: H E, or one more",
                 .least = 0,
                 .most = 1 << 20,
                 .tried = {"6"}},
                temperature_option()},
    .masks = {.causal = true, .lengths = true},
    .causal_only = true,
    .strictly_causal = true,
    .earlier_keys = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .scaling = "N S",
    .attend = attend_transformer_xl,
    .reference = reference_transformer_xl,
    .cost = cost_transformer_xl,
    .decode = decode_transformer_xl}};

}  // namespace
}  // namespace weft
