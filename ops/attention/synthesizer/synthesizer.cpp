// Synthesizer: its scores as products or a bias, the definition, decoding and the fact sheet.
// Equations: synthesizer.h.
#include "ops/attention/synthesizer/synthesizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "ops/blocks/blocks.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"

namespace weft {
namespace {

bool has_products(const AttentionSpec& spec) { return spec.integer("dot") == 1; }
bool is_dense(const AttentionSpec& spec) { return spec.word("mode").ends_with("dense"); }
bool is_factorized(const AttentionSpec& spec) { return spec.word("mode").starts_with("fact"); }
// Whether scores are products of factors of queries and keys.
bool is_inner(const AttentionSpec& spec) { return is_dense(spec) != is_factorized(spec); }

i64 hidden_of(const AttentionSpec& spec, const AttentionSizes& s) {
  return spec.integer("hidden") > 0 ? spec.integer("hidden") : s.E;
}

// a, and ⌈N_max/a⌉.
struct Factors {
  i64 first, second;

  Factors(const AttentionSpec& spec, i64 N_max) : first(spec.integer("factor")) {
    const i64 most = std::max<i64>(N_max, 1);
    if (first == 0) first = static_cast<i64>(std::ceil(std::sqrt(double(most))));
    second = (most + first - 1) / first;
  }
};

// The width of the engine's queries and keys besides those of products: rank, or F + 1.
i64 inner_width(const AttentionSpec& spec, const AttentionSizes& s) {
  if (!is_inner(spec)) return 0;
  return is_dense(spec) ? hidden_of(spec, s) + 1 : spec.integer("rank");
}

// The inputs by their meaning.
struct Synthesizer {
  const AttentionSpec& spec;
  std::span<const Variable> inputs;
  i64 B, N, H;

  Synthesizer(const AttentionSpec& spec, std::span<const Variable> inputs)
      : spec(spec), inputs(inputs), B(v().size(0)), N(v().size(1)), H(v().size(2)) {
    if (!is_dense(spec) || !is_factorized(spec)) return;
    const Variable &w2b = learnt(3), &b2b = learnt(4);
    require(w2b.size(2) == b2b.size(1),
            "synthesizer: w2b is {} and b2b {}; wanted the same number of columns", w2b.shape(),
            b2b.shape());
  }

  const Variable& v() const { return inputs[has_products(spec) ? 2 : 0]; }
  // The inputs after v: in the dense modes `hidden` comes first.
  const Variable& learnt(std::size_t number) const {
    return inputs[number + (has_products(spec) ? 3 : 1)];
  }
  double temperature() const {
    return has_products(spec) ? temperature_of(spec, inputs[0].size(3)) : 1;
  }
  Variable like_v(const Shape& shape, double value) const {
    const Tensor& x = v().value();
    return Tensor::full(shape, value, x.dtype(), x.device());
  }
  // x_i or y_i for the first `columns` of w [H, F, columns] and b [H, columns]: [B, H, N, columns].
  Variable factor(const Variable& relued, const Variable& w, const Variable& b, i64 columns) const {
    const Variable product = matmul(transpose(relued, 1, 2), slice(w, 2, 0, columns));
    return add(product, reshape(slice(b, 1, 0, columns), {H, 1, columns}));
  }
};

// z_ij = temperature q_i · k_j + bias_ij.
struct Scores {
  Variable q = {}, k = {}, bias = {};
  double temperature = 1;
};

// The factors of queries and keys of the positions from `first` on: [N, H, width] if it is one for
// all items.
std::pair<Variable, Variable> inner_parts(const Synthesizer& s, i64 first) {
  const i64 end = first + s.N;
  const auto by_key = [&](const Variable& x) {  // [H, width, N_max] → [N, H, width]
    return transpose(transpose(slice(x, 2, first, end), 0, 2), 1, 2);
  };
  if (!is_dense(s.spec)) {
    return {transpose(slice(s.learnt(0), 1, first, end), 0, 1), by_key(s.learnt(1))};
  }
  const Variable b2 = reshape(s.learnt(2), {s.H, 1, s.learnt(2).size(1)});
  const Variable query[] = {relu(s.learnt(0)), s.like_v({s.B, s.N, s.H, 1}, 1)};
  const Variable key[] = {by_key(s.learnt(1)), by_key(b2)};
  return {concatenate(query, 3), concatenate(key, 2)};
}

// For all keys before first + N; `none` is the width of queries and keys if there are no products.
Scores scores_of(const Synthesizer& s, const Tensor& lengths, i64 first, i64 none) {
  const i64 end = first + s.N;
  Scores scores{.temperature = s.temperature()};
  if (is_inner(s.spec)) {
    const auto [query, key] = inner_parts(s, first);
    const auto for_items = [&](const Variable& x) {
      return x.value().rank() == 4 ? x : expand(x, {s.B, s.N, s.H, x.size(2)});
    };
    const Variable queries[] = {for_items(query)}, keys[] = {for_items(key)};
    if (!has_products(s.spec)) return {queries[0], keys[0]};
    const Variable both[] = {scale(s.inputs[0], scores.temperature), queries[0]};
    const Variable seen[] = {s.inputs[1], keys[0]};
    return {concatenate(both, 3), concatenate(seen, 3)};
  }
  scores.q = scores.k = s.like_v({s.B, s.N, s.H, none}, 0);
  if (has_products(s.spec)) scores.q = s.inputs[0], scores.k = s.inputs[1];
  if (!is_dense(s.spec)) {
    const Variable rows = slice(slice(s.learnt(0), 1, first, end), 2, 0, end);
    scores.bias = reshape(rows, {1, s.H, s.N, end});
    return scores;
  }
  // Positions beyond the lengths may hold anything, which must reach no sum.
  const Variable& hidden = s.learnt(0);
  const Variable relued = relu(lengths.defined() ? block_mean(hidden, 1, lengths) : hidden);
  const i64 a = s.learnt(1).size(2), c = (end + a - 1) / a;
  const Variable x = s.factor(relued, s.learnt(1), s.learnt(2), a);
  const Variable y = s.factor(relued, s.learnt(3), s.learnt(4), c);
  const Variable tiles = mul(reshape(y, {s.B, s.H, s.N, c, 1}), reshape(x, {s.B, s.H, s.N, 1, a}));
  scores.bias = slice(reshape(tiles, {s.B, s.H, s.N, c * a}), 3, 0, end);
  return scores;
}

Attended attend_synthesizer(const AttentionSpec& spec, const AttentionCall& call,
                            std::span<const Variable> inputs) {
  const Synthesizer s(spec, inputs);
  const Scores scores = scores_of(s, call.lengths, 0, 0);
  const PairsCall pairs{"synthesizer", scores.temperature, call.lengths, call.dropout, call.random};
  return pairs_attention(pairs, scores.q, {scores.k, s.v(), call.lengths},
                         {.band = call.causal ? Band::causal() : Band::all(), .biased = true},
                         scores.bias);
}

// r [B|1, H, N, N].
Variable learnt_scores(const Synthesizer& s) {
  const auto cut = [&](const Variable& x, int axis) { return slice(x, axis, 0, s.N); };
  if (!is_dense(s.spec)) {
    const Variable r = is_factorized(s.spec) ? matmul(cut(s.learnt(0), 1), cut(s.learnt(1), 2))
                                             : cut(cut(s.learnt(0), 1), 2);
    return reshape(r, {1, s.H, s.N, s.N});
  }
  const Variable relued = relu(s.learnt(0));
  if (!is_factorized(s.spec)) return s.factor(relued, s.learnt(1), s.learnt(2), s.N);
  const i64 a = s.learnt(1).size(2), c = s.learnt(3).size(2);
  const auto by_key = [&](const Variable& x, auto column) {
    std::vector<i64> columns;
    for (i64 j = 0; j < s.N; ++j) columns.push_back(column(j));
    return gather(x, 3, Tensor::from(columns, {1, 1, 1, s.N}));
  };
  return mul(by_key(s.factor(relued, s.learnt(1), s.learnt(2), a), [&](i64 j) { return j % a; }),
             by_key(s.factor(relued, s.learnt(3), s.learnt(4), c), [&](i64 j) { return j / a; }));
}

Attended reference_synthesizer(const AttentionSpec& spec, const AttentionCall& call,
                               std::span<const Variable> inputs) {
  const Synthesizer s(spec, inputs);
  AttentionCall self = call;
  self.query_lengths = call.lengths;
  const Variable none = s.like_v({s.B, s.N, s.H, 1}, 0);
  return attention_over(visibility(self, s.B, s.N, s.N), s.temperature(), call,
                        has_products(spec) ? inputs[0] : none,
                        has_products(spec) ? inputs[1] : none, s.v(), learnt_scores(s));
}

// Backward of the engine comes first, when its gradients of queries and keys or of the bias exist,
// and those of the parameters do not; then these are summed, in f64.
AttentionCost cost_synthesizer(const AttentionSpec& spec, const AttentionSizes& s, bool causal,
                               DType type) {
  const double item = double(size_of(type)), N = double(s.N);
  const double once = double(s.H) * N, all = double(s.B) * once;  // positions of one item, of all
  const double wide = double(sizeof(double)) / item;
  const bool dot = has_products(spec);
  const double products = dot ? double(s.E) : 0,
               F = is_dense(spec) ? double(hidden_of(spec, s)) : 0;
  const double made = double(inner_width(spec, s)), width = products + made;
  AttentionSizes inside = s;
  inside.E = static_cast<i64>(width);
  AttentionCost cost = pairs_cost(inside, all * N / (causal ? 2 : 1), type);
  double saved = all * F, held = 0, later = 0, sums = 0;  // numbers; sums in f64 on the CPU
  if (is_inner(spec)) {
    if (dot || is_dense(spec)) saved += (all + (dot ? all : once)) * width;
    held = 2 * all * (width - products) - all * F - once * made * (is_dense(spec) ? 1 : 2);
    if (!dot && !is_dense(spec)) {
      later = held + once * made;
      sums = s.B > 1 ? once * made * wide : 0;
    }
  } else if (is_dense(spec)) {
    const Factors factors(spec, s.N);
    const double a = double(factors.first), c = double(factors.second);
    saved += all * (a + c + a * c);
    held = all * N - all * F;
    later = all * (a * c + a + c - F), sums = all * (a + c) * wide;
    const double maps = all * (2 * F * (a + c) + a * c);
    cost.forward_operations += maps;
    cost.backward_operations += 2 * maps;
  } else {
    held = (all - once) * N;
    later = all * N, sums = s.B > 1 ? once * N * wide : 0;
  }
  cost.saved_bytes += item * saved;
  cost.working_bytes = std::max(cost.working_bytes + item * held, item * (later + sums));
  cost.cuda_working_bytes = std::max(cost.cuda_working_bytes + item * held, item * later);
  return cost;
}

// The engine's keys and the values are kept; the scores know the number of earlier positions.
class SynthesizerDecoding final : public DecodingState {
 public:
  SynthesizerDecoding(const AttentionSpec& spec, const AttentionSizes& sizes, DType type,
                      i64 capacity)
      : spec_(spec), N_max_(sizes.N_max) {
    const bool dot = has_products(spec);
    AttentionSizes inside = sizes;
    inside.E = std::max<i64>((dot ? sizes.E : 0) + inner_width(spec, sizes), 1);
    const std::string temperature = is_inner(spec) ? "1" : spec.word("temperature");
    cache_ = decode_by_cache(AttentionSpec("full:temperature=" + temperature), inside, type,
                             std::min(capacity, N_max_));
  }

  Tensor step(std::span<const Tensor> inputs) override {
    const Tape::Pause pause;
    const std::vector<Variable> list(inputs.begin(), inputs.end());
    const Synthesizer s(spec_, list);
    require(seen_ + s.N <= N_max_, "synthesizer: its learnt tensors are for {} positions, got {}",
            N_max_, seen_ + s.N);
    const Scores scores = scores_of(s, {}, seen_, 1);
    seen_ += s.N;
    const Tensor bias = scores.bias.defined() ? scores.bias.value() : Tensor();
    const Tensor parts[] = {scores.q.value(), scores.k.value(), s.v().value(), bias};
    return cache_->step(std::span(parts, bias.defined() ? 4 : 3));
  }

  i64 bytes() const override { return cache_->bytes(); }

 private:
  AttentionSpec spec_;
  i64 N_max_, seen_ = 0;
  std::unique_ptr<DecodingState> cache_;
};

AttentionInputs synthesizer_inputs(const AttentionSpec& spec, const AttentionSizes& s) {
  const bool dot = has_products(spec);
  const i64 F = hidden_of(spec, s), f = spec.integer("rank"), N_max = s.N_max;
  const Factors factors(spec, N_max);
  const i64 a = factors.first, c = factors.second;
  AttentionInputs inputs;
  const auto projected = [&](const char* name, const char* axes) {
    inputs.push_back({.name = name, .axes = axes, .matrix = dot ? "qkv" : "v"});
  };
  if (dot) projected("q", "B N H E"), projected("k", "B N H E");
  projected("v", "B N H M");
  if (is_dense(spec)) {
    inputs.push_back({.name = "hidden",
                      .axes = "B N H hidden",
                      .shape = {s.B, s.N, s.H, F},
                      .biased = true,
                      .bias = {Initializer::zeros}});
  }
  // A matrix for each head, initialised as glorot_uniform; or a vector of zeros.
  const auto learnt = [&](const char* name, const char* axes, const Shape& shape) {
    Initializer weight{Initializer::zeros};
    if (shape.rank() == 3) {
      weight = {Initializer::uniform, std::sqrt(6 / std::max(double(shape[1] + shape[2]), 1.0))};
    }
    inputs.push_back(
        {.name = name, .role = Role::parameter, .axes = axes, .shape = shape, .weight = weight});
  };
  if (spec.word("mode") == "random") {
    learnt("random", "H N_max N_max", {s.H, N_max, N_max});
  } else if (!is_dense(spec)) {
    learnt("random1", "H N_max rank", {s.H, N_max, f});
    learnt("random2", "H rank N_max", {s.H, f, N_max});
  } else if (!is_factorized(spec)) {
    learnt("w2", "H hidden N_max", {s.H, F, N_max});
    learnt("b2", "H N_max", {s.H, N_max});
  } else {
    learnt("w2a", "H hidden factor", {s.H, F, a});
    learnt("b2a", "H factor", {s.H, a});
    learnt("w2b", "H hidden ⌈N_max/factor⌉", {s.H, F, c});
    learnt("b2b", "H ⌈N_max/factor⌉", {s.H, c});
  }
  return inputs;
}

const Registration registered_synthesizer{Mechanism{
    .name = "synthesizer",
    .title = "softmax over scores that are learnt by position, or made of the query alone",
    .paper = "Y. Tay et al., Synthesizer: rethinking self-attention in transformer models, ICML "
             "2021, arXiv 2005.00743",
    .equations = "section 3",
    .inputs = synthesizer_inputs,
    .options = {{.name = "mode",
                 .initial = "random",
                 .help = "scores of each pair of positions, or made of the query; factorized: with "
                         "fewer learnt numbers",
                 .choices = {"random", "factorized-random", "dense", "factorized-dense"}},
                flag_option("dot", false, "1: products of queries and keys are added"),
                {.name = "rank",
                 .initial = "32",
                 .help = "f: rank of factorized-random",
                 .least = 1,
                 .most = 1 << 20,
                 .with = "mode=factorized-random",
                 .tried = {"3"}},
                {.name = "factor",
                 .initial = "0",
                 .help = "a: columns of factorized-dense that repeat; 0: ceil(sqrt(N_max))",
                 .least = 0,
                 .most = 1 << 20,
                 .with = "mode=factorized-dense",
                 .tried = {"4"}},
                {.name = "hidden",
                 .initial = "0",
                 .help = "F: hidden width of a head of the dense modes; 0: E",
                 .least = 0,
                 .most = 1 << 20,
                 .with = "mode=dense|factorized-dense",
                 .tried = {"7"}},
                temperature_option("dot=1")},
    .masks = {.causal = true, .lengths = true},
    .strictly_causal = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .scaling = "N²",
    .memory = "N²",
    .attend = attend_synthesizer,
    .reference = reference_synthesizer,
    .cost = cost_synthesizer,
    .decode = [](const AttentionSpec& spec, const AttentionSizes& sizes, DType type,
                 i64 capacity) -> std::unique_ptr<DecodingState> {
      return std::make_unique<SynthesizerDecoding>(spec, sizes, type, capacity);
    }}};

}  // namespace
}  // namespace weft
