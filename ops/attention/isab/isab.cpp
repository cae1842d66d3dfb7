// ISAB: the block on the engine for pairs, its definition and the fact sheet. Equations: isab.h.
#include "ops/attention/isab/isab.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/scores.h"
#include "ops/blocks/blocks.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"

namespace weft {
namespace {

bool has_norms(const AttentionSpec& spec) { return spec.integer("norm") == 1; }

enum MabMap { map_q, map_k, map_v, map_o };  // of a MAB, in the order of the inputs

struct Isab {
  const AttentionSpec& spec;
  const AttentionCall& call;
  std::span<const Variable> inputs;
  i64 B, N, C, H;

  Isab(const AttentionSpec& spec, const AttentionCall& call, std::span<const Variable> inputs)
      : spec(spec),
        call(call),
        inputs(inputs),
        B(x().size(0)),
        N(x().size(1)),
        C(inducing().size(1)),
        H(spec.integer("heads")) {
    require(C % H == 0, "isab: wanted a width of whole heads, got {} in {} heads", C, H);
  }

  const Variable& x() const { return inputs[0]; }
  const Variable& inducing() const { return inputs[1]; }
  const Variable& weight(int mab, MabMap map) const {
    return inputs[std::size_t(2 + 4 * mab + map)];
  }
  const Variable& bias(int mab, MabMap map) const {
    return inputs[std::size_t(10 + 4 * mab + map)];
  }
  Variable norm_row(int input, i64 row) const { return entry_of(inputs[std::size_t(input)], row); }
  double temperature() const { return temperature_of(spec, C); }
  RandomKey random(int mab) const { return attention_key(call.random, mab == 1 ? 0 : 1); }
  Variable heads(const Variable& rows) const {
    return reshape(rows, {rows.size(0), rows.size(1), H, C / H});
  }
  // The inducing points, or their map, for every item.
  Variable for_items(const Variable& rows) const {
    return expand(reshape(rows, {1, rows.size(0), C}), {B, rows.size(0), C});
  }
};

// Several maps of one sequence, as one product.
std::vector<Variable> mapped(const Isab& c, const Variable& rows,
                             const std::vector<std::pair<int, MabMap>>& maps) {
  std::vector<Variable> weights, biases;
  for (const auto& [mab, map] : maps) {
    weights.push_back(c.weight(mab, map)), biases.push_back(c.bias(mab, map));
  }
  const Variable all = linear(rows, concatenate(weights, 1), concatenate(biases, 0));
  return split(all, 2, std::vector<i64>(maps.size(), c.C));
}

// MAB_a of its projections; keys and queries may have lengths.
Variable attended(const Isab& c, int mab, const Variable& q, const PairsSource& source,
                  const Tensor& query_lengths) {
  const PairsCall pairs{"isab", c.temperature(), query_lengths, c.call.dropout, c.random(mab)};
  const PairsSource by_head{c.heads(source.k), c.heads(source.v), source.lengths};
  const Variable found =
      reshape(pairs_attention(pairs, c.heads(q), by_head, PairsPart{}), q.shape());
  const auto joined = [&](const Variable& rows, const Variable& branch, i64 norm) {
    if (!has_norms(c.spec)) return add(rows, branch);
    return residual_layer_norm(rows, branch, c.norm_row(18, norm), c.norm_row(19, norm), {});
  };
  const Variable rows = joined(q, found, 2 * mab);
  return joined(rows, relu(linear(rows, c.weight(mab, map_o), c.bias(mab, map_o))), 2 * mab + 1);
}

Attended attend_isab(const AttentionSpec& spec, const AttentionCall& call,
                     std::span<const Variable> inputs) {
  const Isab c(spec, call, inputs);
  const Variable x = within_lengths(c.x(), call.lengths);
  if (c.B * c.N == 0) {
    return with_zero_gradients(reshape(x, {c.B, c.N, c.C}), inputs.subspan(1));
  }
  const std::vector<Variable> of_x = mapped(c, x, {{0, map_k}, {0, map_v}, {1, map_q}});
  const Variable q = c.for_items(linear(c.inducing(), c.weight(0, map_q), c.bias(0, map_q)));
  const Variable points = attended(c, 0, q, {of_x[0], of_x[1], call.lengths}, {});
  const std::vector<Variable> of_points = mapped(c, points, {{1, map_k}, {1, map_v}});
  const Variable rows = attended(c, 1, of_x[2], {of_points[0], of_points[1]}, call.lengths);
  return within_lengths(rows, call.lengths);
}

// MAB_a(X, Y), where `seen` says which pairs are visible.
Variable defined_mab(const Isab& c, int mab, const Variable& X, const Variable& Y,
                     const Tensor& seen) {
  const auto map = [&](const Variable& rows, MabMap which) {
    return add(matmul(rows, c.weight(mab, which)), c.bias(mab, which));
  };
  const auto norm = [&](const Variable& rows, i64 number) {
    if (!has_norms(c.spec)) return rows;
    return layer_norm(rows, c.norm_row(18, number), c.norm_row(19, number));
  };
  AttentionCall own = c.call;
  own.random = c.random(mab);
  const Variable q = map(X, map_q);
  const Variable found = attention_over(seen, c.temperature(), own, c.heads(q),
                                        c.heads(map(Y, map_k)), c.heads(map(Y, map_v)));
  const Variable rows = norm(add(q, reshape(found, q.shape())), 2 * mab);
  return norm(add(rows, relu(map(rows, map_o))), 2 * mab + 1);
}

Attended reference_isab(const AttentionSpec& spec, const AttentionCall& call,
                        std::span<const Variable> inputs) {
  const Isab c(spec, call, inputs);
  const Tensor there = existence(call.lengths, c.B, c.N, c.x().value().dtype());
  const i64 m = c.inducing().size(0);
  AttentionCall queries;
  queries.query_lengths = call.lengths;
  const Variable x = mul(c.x(), there);
  const Variable points =
      defined_mab(c, 0, c.for_items(c.inducing()), x, visibility(call, c.B, m, c.N));
  return mul(defined_mab(c, 1, x, points, visibility(queries, c.B, c.N, m)), there);
}

AttentionInputs isab_inputs(const AttentionSpec& spec, const AttentionSizes& s) {
  const i64 C = width_of(spec, s), m = spec.integer("points");
  AttentionInputs inputs{{.name = "x", .role = Role::sequence, .axes = "B N d"}};
  inputs.push_back(learnt("inducing", "points width", {m, C},
                          {Initializer::uniform, std::sqrt(6 / double(m + C))}));
  // Each map is initialised as in the released code.
  const auto rows = [&](int mab, int map) {
    return mab == 0 ? map == map_k || map == map_v : map == map_q;
  };
  for (int number = 0; number < 16; ++number) {
    const int mab = number / 4 % 2, map = number % 4;
    const bool of_x = rows(mab, map);
    const i64 in = of_x ? s.d : C;
    const std::string name =
        std::string(number < 8 ? "w" : "b") + "qkvo"[map] + std::to_string(mab);
    const Initializer start = uniform_by_fan_in(in);
    inputs.push_back(number < 8 ? learnt(name, of_x ? "d width" : "width width", {in, C}, start)
                                : learnt(name, "width", {C}, start));
  }
  if (!has_norms(spec)) return inputs;
  inputs.push_back(learnt("norm_gain", "4 width", {4, C}, {Initializer::constant, 1}));
  inputs.push_back(learnt("norm_bias", "4 width", {4, C}, {Initializer::zeros}));
  return inputs;
}

// The bytes are those of backward through the second attention, before the gradients of x and of
// most parameters exist; norms have freed what they saved.
AttentionCost cost_isab(const AttentionSpec& spec, const AttentionSizes& s, bool, DType type) {
  const i64 C = width_of(spec, s), m = spec.integer("points"), H = spec.integer("heads");
  const double item = double(size_of(type)), B = double(s.B), c = double(C), d = double(s.d);
  const double rows = double(s.B * s.N), points = double(m), pairs = double(s.B * H * m * s.N);
  AttentionSizes up{.B = s.B, .N = s.N, .S = m, .H = H, .E = C / H, .M = C / H}, down = up;
  std::swap(down.N, down.S);
  AttentionCost cost = pairs_cost(up, pairs, type);
  const AttentionCost first = pairs_cost(down, pairs, type);
  const double maps = rows * c * (3 * d + c) + points * c * c * (1 + 3 * B);
  const double norms = has_norms(spec) ? 2 * (rows + B * points) * (c + 1) : 0;
  cost.forward_operations += first.forward_operations + 2 * maps;
  cost.backward_operations += first.backward_operations + 4 * maps;
  cost.exponentials += first.exponentials;
  cost.saved_bytes += first.saved_bytes;
  cost.saved_bytes +=
      item * (6 * rows * c + points * c * (1 + 6 * B) + norms + c * (3 * d + 2 * c));
  const double parameters = double(count_of(isab_inputs(spec, s), Role::parameter));
  const double missing = item * (rows * (d + (has_norms(spec) ? 2 * c : 0)) + parameters);
  cost.working_bytes = std::max(cost.working_bytes - missing, 0.0);
  // At the end of backward a gradient of width C stands where dx, of width d, is not yet.
  const double wider = item * (rows * (c - d) - parameters);
  cost.cuda_working_bytes = std::max({cost.cuda_working_bytes - missing, wider, 0.0});
  return cost;
}

const Registration registered_isab{Mechanism{
    .name = "isab",
    .title = "attention of a set to a few learnt points, which have attended to all of it",
    .paper = "J. Lee et al., Set Transformer: a framework for attention-based "
             "permutation-invariant neural networks, ICML 2019, arXiv 1810.00825",
    .equations = "eqs. 6, 7, 9 and 10",
    .kind = Kind::block,
    .inputs = isab_inputs,
    .out_width = width_of,
    .options = {{.name = "heads",
                 .initial = "4",
                 .help = "of equal parts of the width",
                 .least = 1,
                 .most = 1 << 16,
                 .tried = {"1"}},
                {.name = "points",
                 .initial = "16",
                 .help = "m: inducing points",
                 .least = 1,
                 .most = 1 << 20,
                 .tried = {"3"}},
                {.name = "width",
                 .initial = "0",
                 .help = "C: width of out; 0: d",
                 .least = 0,
                 .most = 1 << 20,
                 .tried = {"60"}},
                flag_option("norm", false, "1: layer norms after both sums of either attention"),
                {.name = "temperature",
                 .initial = "0",
                 .help = "factor of the scores before the softmax; 0: 1/sqrt(C)",
                 .least = 0,
                 .most = 1e6,
                 .whole = false,
                 .tried = {"0.7"}}},
    .masks = {.lengths = true},
    .scaling = "N m",
    .attend = attend_isab,
    .reference = reference_isab,
    .cost = cost_isab}};

}  // namespace
}  // namespace weft
