// MEGA: the block, its two attentions, the definition, decoding and the fact sheet. Equations:
// mega.h.
#include "ops/attention/mega/mega.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "autograd/tape.h"
#include "ops/attention/definitions.h"
#include "ops/attention/engines/elementwise/attention.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "ops/blocks/blocks.h"
#include "ops/gather/gather.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/matmul/matmul.h"
#include "ops/moving_average/moving_average.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace weft {
namespace {

i64 value_width(const AttentionSpec& spec, const AttentionSizes& s) {
  return spec.integer("value_width") > 0 ? spec.integer("value_width") : 2 * s.d;
}
bool is_softmax(const AttentionSpec& spec) { return spec.word("attention") == "softmax"; }
bool permutes(const AttentionSpec& spec) { return spec.word("attention") == "csp"; }
// Positions of a chunk, for a sequence of N.
i64 chunk_of(const AttentionSpec& spec, i64 N) {
  const i64 chunk = spec.integer("chunk");
  return chunk == 0 ? N : std::min(chunk, N);
}
AttentionSpec csp_of(const AttentionSpec& spec) {
  return AttentionSpec(fmt::format("csp:shift={},group={},groups={},order={}",
                                   spec.word("csp_shift"), spec.integer("csp_group"),
                                   spec.integer("csp_groups"), spec.word("csp_order")));
}

enum MegaInput {
  sequence,
  norm_gain,
  norm_bias,
  ema_delta,
  ema_alpha,
  ema_beta,
  ema_gamma,
  ema_omega,
  w_v,
  b_v,
  w_x,
  b_x,
  w_h,
  b_h,
  gamma,
  beta,
  rel_bias
};

struct Mega {
  const AttentionSpec& spec;
  std::span<const Variable> inputs;

  const Variable& operator[](MegaInput input) const { return inputs[input]; }
  Variable row(MegaInput input, i64 number) const { return entry_of(inputs[input], number); }
  Variable normed(const Variable& x) const {
    return layer_norm(x, inputs[norm_gain], inputs[norm_bias]);
  }
  DampedAverage average() const {
    return {inputs[ema_delta], inputs[ema_alpha], inputs[ema_beta], inputs[ema_gamma]};
  }
};

// The inputs of attention, and of the gates after it.
struct Mapped {
  Variable u, q, k, v, r, hx;
};

// From x̃ and its moving average. A softmax does not depend on beta[1], which is not added to its
// keys.
Mapped mapped(const Mega& c, const Variable& x, const Variable& average, bool whole_keys) {
  const i64 d = x.size(2), z = c[gamma].size(1), h = c[w_h].size(0);
  const Variable moved = silu(add(average, mul(x, c[ema_omega])));
  const std::vector<Variable> parts = split(linear(moved, c[w_x], c[b_x]), 2, {d, z, h, d});
  const Variable shared = silu(parts[1]), key = mul(shared, c.row(gamma, 1));
  return {.u = sigmoid(parts[0]),
          .q = add(mul(shared, c.row(gamma, 0)), c.row(beta, 0)),
          .k = whole_keys ? add(key, c.row(beta, 1)) : key,
          .v = silu(linear(x, c[w_v], c[b_v])),
          .r = silu(parts[2]),
          .hx = parts[3]};
}

Variable gated(const Mega& c, const Variable& x, const Mapped& m, const Variable& o) {
  const Variable update = silu(add(m.hx, linear(mul(o, m.r), c[w_h], c[b_h])));
  return add(x, mul(m.u, sub(update, x)));
}

// [B, N, width] as one head, and back.
Variable heads(const Variable& x) { return reshape(x, {x.size(0), x.size(1), 1, x.size(2)}); }
Variable joined(const Variable& x) { return reshape(x, {x.size(0), x.size(1), x.size(3)}); }

// Queries are the last N of S positions; there are no chunks then.
Variable by_softmax(const AttentionSpec& spec, const AttentionCall& call, const Variable& q,
                    const Variable& k, const Variable& v, const Variable& table) {
  const i64 S = k.size(1), before = S - q.size(1), chunk = chunk_of(spec, S);
  Band band = chunk < S ? Band::blocks(chunk) : Band::all();
  if (call.causal) band.end = {.slope = 1, .offset = before + 1};
  const PairsCall pairs{.name = "mega",
                        .temperature = 1 / std::sqrt(double(q.size(2))),
                        .query_lengths = call.lengths,
                        .dropout = call.dropout,
                        .random = call.random,
                        .origin = middle_of("mega", table, chunk) - before};
  return joined(pairs_attention(pairs, heads(q), {heads(k), heads(v), call.lengths},
                                {.band = band, .biased = true},
                                reshape(table, {1, table.size(0)})));
}

ElementwiseCall elementwise_of(const AttentionSpec& spec, const AttentionCall& call, i64 S) {
  return {.name = "mega",
          .laplace = spec.word("attention") == "laplace",
          .causal = call.causal,
          .chunk = chunk_of(spec, S),
          .lengths = call.lengths,
          .dropout = call.dropout,
          .random = call.random};
}

// csp(v) by `run`, attend or defined.
Variable permuted(const AttentionSpec& spec, const AttentionCall& call, Mechanism::Forward run,
                  const Mapped& m, const Variable& rel_bias) {
  const std::vector<Variable> v{heads(m.v)};
  return with_zero_gradients(joined(run(csp_of(spec), call, v).out),
                             std::vector{m.q, m.k, rel_bias});
}

}  // namespace

Variable mega_attention(const AttentionSpec& spec, const AttentionCall& call, const Variable& q,
                        const Variable& k, const Variable& v, const Variable& rel_bias) {
  if (is_softmax(spec)) return by_softmax(spec, call, q, k, v, rel_bias);
  return elementwise_attention(elementwise_of(spec, call, k.size(1)), q, k, v, rel_bias);
}

namespace {

Attended attend_mega(const AttentionSpec& spec, const AttentionCall& call,
                     std::span<const Variable> inputs) {
  const Mega c{spec, inputs};
  const Variable x = within_lengths(c[sequence], call.lengths);
  if (x.value().count() == 0) return with_zero_gradients(x, inputs.subspan(1));
  const Variable normed = c.normed(x);
  const DampedAverage by = c.average();
  const Variable average =
      moving_average(normed, by.decay, by.weight, call.lengths, spec.integer("truncation"));
  const Mapped m = mapped(c, normed, average, !is_softmax(spec));
  const Variable o = permutes(spec) ? permuted(spec, call, attend, m, c[rel_bias])
                                    : mega_attention(spec, call, m.q, m.k, m.v, c[rel_bias]);
  return within_lengths(gated(c, x, m, o), call.lengths);
}

// y [B, N, d] of x, which is 0 beyond the lengths: κ of every lag, as matrices [d, N, N].
Variable defined_average(const Mega& c, const Variable& x) {
  const i64 N = x.size(1), truncation = c.spec.integer("truncation");
  const DType type = x.value().dtype();
  const DampedAverage by = c.average();
  const Tensor lags = Tensor::zeros({N}, DType::f64), counted = Tensor::zeros({N}, DType::f64);
  for (i64 t = 0; t < N; ++t) {
    lags.data<double>()[t] = double(t);
    counted.data<double>()[t] = truncation == 0 || t < truncation ? 1 : 0;
  }
  const Variable powers = exp(mul(column(log(by.decay)), lags.to(type)));  // [D, d, n, N]
  const Variable kernel = mul(sum(mul(column(by.weight), powers), 2), counted.to(type));
  Variable y;
  for (i64 set = 0; set < kernel.size(0); ++set) {
    const Tensor index = Tensor::full({1, 1, N * N}, N, DType::i64);  // index of a zero
    for (i64 i = 0; i < N; ++i) {
      for (i64 j = 0; j < N; ++j) {
        const i64 lag = set == 0 ? i - j : j - i;
        if (lag >= 0) index.data<i64>()[i * N + j] = lag;
      }
    }
    const i64 d = x.size(2);
    const Variable own[] = {slice(kernel, 0, set, set + 1), Tensor::zeros({1, d, 1}, type)};
    const Variable matrix = reshape(gather(concatenate(own, 2), 2, index), {d, N, N});
    const Variable part = transpose(matmul(matrix, transpose(x, 0, 2)), 0, 2);
    y = set == 0 ? part : add(y, part);
  }
  return y;
}

Attended reference_mega(const AttentionSpec& spec, const AttentionCall& call,
                        std::span<const Variable> inputs) {
  const Mega c{spec, inputs};
  const i64 B = c[sequence].size(0), N = c[sequence].size(1);
  if (B * N == 0) return c[sequence];
  const DType type = c[sequence].value().dtype();
  const Tensor there = existence(call.lengths, B, N, type);
  const Variable x = mul(c[sequence], there), normed = mul(c.normed(x), there);
  const Mapped m = mapped(c, normed, defined_average(c, normed), true);
  Variable o;
  if (permutes(spec)) {
    o = permuted(spec, call, defined, m, c[rel_bias]);
  } else {
    const i64 chunk = chunk_of(spec, N), middle = middle_of("mega", c[rel_bias], chunk);
    const Tensor seen = self_visibility(
        call, B, 1, N, [&](i64, i64, i64 i, i64 j) { return i / chunk == j / chunk; });
    const Tensor index = Tensor::full({N * N}, 0, DType::i64);
    for (i64 pair = 0; pair < N * N; ++pair) {
      const i64 i = pair / N, j = pair % N;
      if (i / chunk == j / chunk) index.data<i64>()[pair] = middle + j - i;
    }
    const Variable bias = reshape(gather(c[rel_bias], 0, index), {1, 1, N, N});
    const Variable q = heads(m.q), k = heads(m.k), v = heads(m.v);
    if (is_softmax(spec)) {
      o = attention_over(seen, 1 / std::sqrt(double(m.q.size(2))), call, q, k, v, bias);
    } else {
      const ElementwiseCall own = elementwise_of(spec, call, N);
      const Tensor counts = maximum(column(sum(seen, 3)), Tensor::full({}, 1, DType::f64)).value();
      const Variable products = matmul(transpose(q, 1, 2), transpose(transpose(k, 1, 2), 2, 3));
      const Variable scores = add(div(products, counts.to(type)), bias);
      const Variable a = mul(mul(elementwise_weights(own.laplace, scores), seen.to(type)),
                             elementwise_dropout(own, B, N, type));
      o = transpose(matmul(a, transpose(v, 1, 2)), 1, 2);
    }
  }
  return mul(gated(c, x, m, reshape(o, m.v.shape())), there);
}

// The bytes are those of backward through the attention, when the gradients of the gates exist and
// those of the weights before it do not, or those at the end of forward, whichever is more.
AttentionCost cost_mega(const AttentionSpec& spec, const AttentionSizes& s, bool causal,
                        DType type) {
  const double item = double(size_of(type)), positions = double(s.B * s.N), d = double(s.d);
  const AttentionSizes inner{
      .B = s.B, .N = s.N, .S = s.N, .E = spec.integer("key_width"), .M = value_width(spec, s)};
  const double z = double(inner.E), h = double(inner.M), chunk = double(chunk_of(spec, s.N));
  const double states = d * double(spec.integer("states")) * (causal ? 1 : 2);
  const double pairs = positions * (causal ? (chunk + 1) / 2 : chunk);
  const double maps = d * (2 * d + z + 3 * h);
  AttentionCost cost;
  double saved = 7 * d + 4 * z + 6 * h + 1, working = 2 * (z + h);
  if (permutes(spec)) {
    cost = attention_cost(csp_of(spec), inner, false, type);
    cost.working_bytes = cost.cuda_working_bytes = 0;
    saved -= 2 * z + h, working = 3 * (d + z) + 2 * h;
  } else if (is_softmax(spec)) {
    cost = pairs_cost(inner, pairs, type);
  } else {
    cost = elementwise_cost(inner, pairs, chunk_of(spec, s.N), type);
    cost.cuda_working_bytes += item * positions * d;  // measured: one more as large as x
  }
  const double gradients = item * (positions * working - maps);
  cost.forward_operations += 2 * positions * maps + 4 * positions * states;
  cost.backward_operations += 4 * positions * maps + 12 * positions * states;
  cost.exponentials += 2 * positions * (3 * d + z + 2 * h);
  cost.saved_bytes += item * (positions * saved + 5 * states);
  const double end = std::max(item * (positions * (4 * d + z + h) - maps), 0.0);
  cost.working_bytes = std::max(cost.working_bytes + gradients, end);
  cost.cuda_working_bytes = std::max(cost.cuda_working_bytes + gradients, end);
  return cost;
}

// Keys and values of the chunk so far, or of all positions.
class ChunkCache final : public OrderedCache {
 public:
  using OrderedCache::OrderedCache;

 private:
  Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v,
                  std::span<const Tensor> others) override {
    return heads(
               mega_attention(spec_, {.causal = true}, joined(q), joined(k), joined(v), others[0]))
        .value();
  }
};

class MegaDecoding final : public DecodingState {
 public:
  MegaDecoding(const AttentionSpec& spec, DType type, i64 capacity)
      : spec_(spec), type_(type), capacity_(capacity), average_(spec.integer("truncation")) {}

  Tensor step(std::span<const Tensor> given) override {
    const Tape::Pause pause;
    const std::vector<Variable> inputs(given.begin(), given.end());
    const Mega c{spec_, inputs};
    const Variable& x = c[sequence];
    const Variable normed = c.normed(x);
    const DampedAverage by = c.average();
    const Tensor y = average_.step(normed.value(), by.decay.value(), by.weight.value());
    const Mapped m = mapped(c, normed, y, !is_softmax(spec_));
    const i64 n = x.size(1), chunk = spec_.integer("chunk");
    std::vector<Variable> parts;
    for (i64 begin = 0; begin < n;) {
      if (!cache_ || (chunk > 0 && seen_ % chunk == 0)) start_chunk(m.k.shape(), m.v.size(2));
      const i64 end = chunk == 0 ? n : std::min(n, begin + chunk - seen_ % chunk);
      const auto rows = [&](const Variable& all) {
        return heads(slice(all, 1, begin, end)).value();
      };
      const Tensor own[] = {rows(m.q), rows(m.k), rows(m.v), given[rel_bias]};
      parts.push_back(joined(cache_->step(own)));
      seen_ += end - begin;
      begin = end;
    }
    return gated(c, x, m, concatenate(parts, 1)).value();
  }

  i64 bytes() const override { return average_.bytes() + (cache_ ? cache_->bytes() : 0); }

 private:
  void start_chunk(const Shape& keys, i64 h) {
    const i64 chunk = spec_.integer("chunk");
    const AttentionSizes sizes{.B = keys[0], .H = 1, .E = keys[2], .M = h};
    cache_ = std::make_unique<ChunkCache>(spec_, sizes, type_,
                                          chunk == 0 ? capacity_ : std::min(chunk, capacity_),
                                          chunk > 0 && chunk <= capacity_);
  }

  AttentionSpec spec_;
  DType type_;
  i64 capacity_, seen_ = 0;
  MovingAverageState average_;
  std::unique_ptr<ChunkCache> cache_;
};

std::unique_ptr<DecodingState> decode_mega(const AttentionSpec& spec, const AttentionSizes&,
                                           DType type, i64 capacity) {
  return std::make_unique<MegaDecoding>(spec, type, capacity);
}

AttentionInputs mega_inputs(const AttentionSpec& spec, const AttentionSizes& s) {
  const i64 d = s.d, z = spec.integer("key_width"), h = value_width(spec, s);
  const i64 D = s.causal ? 1 : 2, n = spec.integer("states"), chunk = spec.integer("chunk");
  const auto ema = [&](const char* name, Initializer start) {
    return learnt(name, "D d states", {D, d, n}, start);
  };
  const auto normal = [](double deviation) { return Initializer{Initializer::normal, deviation}; };
  const Initializer zeros{Initializer::zeros};
  return {{.name = "x", .role = Role::sequence, .axes = "B N d"},
          learnt("norm_gain", "d", {d}, {Initializer::constant, 1}),
          learnt("norm_bias", "d", {d}, zeros),
          ema("ema_delta", normal(0.2)),
          ema("ema_alpha", normal(0.2)),
          ema("ema_beta", {Initializer::alternating, 0.02}),
          ema("ema_gamma", normal(1)),
          learnt("ema_omega", "d", {d}, normal(1)),
          learnt("w_v", "d value_width", {d, h}, normal(0.02)),
          learnt("b_v", "value_width", {h}, zeros),
          learnt("w_x", "d 2d+z+h", {d, 2 * d + z + h}, normal(0.02)),
          learnt("b_x", "2d+z+h", {2 * d + z + h}, zeros),
          learnt("w_h", "value_width d", {h, d}, normal(0.02)),
          learnt("b_h", "d", {d}, zeros),
          learnt("gamma", "2 key_width", {2, z}, normal(0.02)),
          learnt("beta", "2 key_width", {2, z}, zeros),
          learnt("rel_bias", chunk > 0 ? "2·max−1" : "2·N_max−1",
                 {2 * (chunk > 0 ? chunk : s.N_max) - 1}, normal(0.02))};
}

const Registration registered_mega{Mechanism{
    .name = "mega",
    .title = "gated attention behind a moving average, with norm and residual of its own",
    .paper = "X. Ma, C. Zhou, X. Kong, J. He, L. Gui, G. Neubig, J. May, L. Zettlemoyer, Mega: "
             "moving average equipped gated attention, ICLR 2023, arXiv 2209.10655",
    .equations = "eqs. 2 to 16",
    .kind = Kind::block,
    .inputs = mega_inputs,
    .owns_residual = true,
    .choices = {{.name = "src",
                 .shape = "B N h",
                 .sizes =
                     [](const AttentionSpec& spec, const AttentionSizes& s) {
                       return Shape{s.B, s.N, value_width(spec, s)};
                     },
                 .values =
                     [](const ChoicePlace& at) {
                       const i64 length = length_of(at.call.lengths, at.place[0], at.sizes.N);
                       return at.place[1] < length ? length : AttentionChoice::no_such_element;
                     },
                 .order = ChoiceOrder::permutation,
                 .decided = [](const AttentionSpec& spec,
                               const AttentionCall&) { return permutes(spec); }},
                {.name = "shifts",
                 .shape = "h",
                 .sizes = [](const AttentionSpec& spec,
                             const AttentionSizes& s) { return Shape{value_width(spec, s)}; },
                 .values = [](const ChoicePlace&) { return AttentionChoice::unbounded; },
                 .decided = [](const AttentionSpec& spec,
                               const AttentionCall&) { return permutes(spec); }}},
    .options = {{.name = "attention",
                 .initial = "softmax",
                 .help = "how a query weights values; csp: a permutation of the values' channels",
                 .choices = {"softmax", "laplace", "relu2", "csp"}},
                {.name = "chunk",
                 .initial = "0",
                 .help = "positions that attend to each other; 0: all",
                 .least = 0,
                 .most = 1 << 24,
                 .with = "attention!=csp",
                 .tried = {"7", "3,attention=laplace", "66,attention=relu2"}},
                {.name = "truncation",
                 .initial = "0",
                 .help = "lags of the moving average; 0: all",
                 .least = 0,
                 .most = 1 << 24,
                 .tried = {"5,key_width=5,value_width=6,states=3"}},
                {.name = "key_width",
                 .initial = "64",
                 .help = "z: width of queries and keys",
                 .least = 1,
                 .most = 1 << 20,
                 .tried = {"5"}},
                {.name = "value_width",
                 .initial = "0",
                 .help = "h: width of values; 0: 2 d",
                 .least = 0,
                 .most = 1 << 20,
                 .tried = {"6,key_width=3"}},
                {.name = "states",
                 .initial = "16",
                 .help = "n: exponentials of a channel's moving average",
                 .least = 1,
                 .most = 1 << 16,
                 .tried = {"3,key_width=4"}},
                {.name = "csp_shift",
                 .initial = "linear",
                 .help = "the option shift of csp",
                 .choices = {"none", "linear", "power", "head"},
                 .handed = {"custom"},
                 .with = "attention=csp"},
                {.name = "csp_group",
                 .initial = "2",
                 .help = "the option group of csp: samples in a group",
                 .least = 1,
                 .most = 1e9,
                 .with = "attention=csp",
                 .tried = {"3"}},
                {.name = "csp_groups",
                 .initial = "0",
                 .help = "the option groups of csp: how many, in the place of csp_group",
                 .least = 0,
                 .most = 1e9,
                 .with = "attention=csp,csp_group=2",
                 .tried = {"1"}},
                {.name = "csp_order",
                 .initial = "reference",
                 .help = "the option order of csp",
                 .choices = {"reference", "ascending", "descending"},
                 .with = "attention=csp,csp_group!=1"}},
    .masks = {.causal = true, .lengths = true},
    .causal_wants = "attention!=csp",
    .strictly_causal = true,
    .scaling = "N c",
    .attend = attend_mega,
    .reference = reference_mega,
    .cost = cost_mega,
    .decode = decode_mega}};

}  // namespace
}  // namespace weft
