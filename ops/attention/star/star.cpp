// Star-Transformer: satellites on the engine for lists, the relay, the definition and the fact
// sheet. Equations: star.h.
#include "ops/attention/star/star.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/lists/attention.h"
#include "ops/attention/scores.h"
#include "ops/attention/star/ring.h"
#include "ops/blocks/blocks.h"
#include "ops/dropout/dropout.h"
#include "ops/gather/gather.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"
#include "runtime/row_sums.h"

namespace weft {
namespace {

constexpr double epsilon = 1e-6;

i64 head_width(const AttentionSpec& spec, const AttentionSizes& s) {
  const i64 given = spec.integer("head_width");
  return given > 0 ? given : std::max<i64>(s.d / spec.integer("heads"), 1);
}

enum StarInput {
  nodes,
  gain,
  bias,
  ring_qkv,
  ring_qkv_bias,
  ring_out,
  ring_out_bias,
  star_qkv,
  star_qkv_bias,
  star_out,
  star_out_bias
};

struct Star {
  const AttentionSpec& spec;
  const AttentionCall& call;
  std::span<const Variable> inputs;
  i64 B, N, d, T, H, A, E;

  Star(const AttentionSpec& spec, const AttentionCall& call, std::span<const Variable> inputs)
      : spec(spec),
        call(call),
        inputs(inputs),
        B(x().size(0)),
        N(x().size(1)),
        d(x().size(2)),
        T(inputs[gain].size(0)),
        H(spec.integer("heads")),
        A(inputs[ring_out].size(1)),
        E(A / H) {}

  const Variable& x() const { return inputs[nodes]; }
  bool closed() const { return spec.word("ends") == "ring"; }
  double temperature() const { return 1 / std::sqrt(double(E)); }
  // Row t of a parameter.
  Variable row(int input, i64 t) const { return entry_of(inputs[std::size_t(input)], t); }
  // Its columns first A … end A − 1.
  Variable columns(int input, i64 t, i64 first, i64 end) const {
    return slice(row(input, t), -1, first * A, end * A);
  }
  RandomKey random(bool relay, i64 t) const {
    return attention_key(call.random, 2 * t + (relay ? 1 : 0));
  }
  Variable heads(const Variable& rows) const {
    return reshape(rows, {rows.size(0), rows.size(1), H, E});
  }
  Variable zeros(const Shape& shape) const {
    return Tensor::zeros(shape, x().value().dtype(), x().value().device());
  }
  // The first s, where no output depends on the relay's maps, which are those of a later s.
  Variable without_relay(const Variable& s) const {
    return with_zero_gradients(s, inputs.subspan(star_qkv, 4));
  }
};

EdgeListSizes graph_sizes(i64 items, i64 N, bool closed) {
  return {.items = items,
          .rows = N,
          .keys = Ring::keys(N, closed),
          .edges = Ring::degree * N,
          .runs = N,
          .longest = Ring::degree,
          .longest_out = std::max<i64>(N, 3)};
}

std::shared_ptr<const EdgeListTensors> rings(const Star& c) {
  const Device device = c.x().value().device();
  const auto tensors = std::make_shared<const EdgeListTensors>(
      graph_sizes(c.call.lengths.defined() ? c.B : 1, c.N, c.closed()), device);
  const auto lists = tensors->by_rule(Rings{numbers_of(c.call.lengths), c.N, c.closed()});
  dispatch_device(device, [&](auto place) { RingKernels<decltype(place)>::fill(place, lists); });
  return tensors;
}

// The new h.
Variable satellites(const Star& c, i64 t, const std::shared_ptr<const EdgeListTensors>& lists,
                    const Variable& h, const Variable& e, const Variable& s) {
  const Variable g = layer_norm(h, c.row(gain, t), c.row(bias, t), epsilon);
  const Variable weight = concatenate(std::vector{c.columns(ring_qkv, t, 1, 3)}, 1);  // one copy
  const Variable offset = c.columns(ring_qkv_bias, t, 1, 3);
  std::vector<Variable> rows;
  for (const Variable& of : {g, e, s}) rows.push_back(linear(of, weight, offset));
  if (!c.closed()) rows.push_back(c.zeros({c.B, 1, 2 * c.A}));
  const std::vector<Variable> both = split(concatenate(rows, 1), 2, {c.A, c.A});
  const Variable q = linear(g, c.columns(ring_qkv, t, 0, 1), c.columns(ring_qkv_bias, t, 0, 1));
  const ListsCall call{"star", c.temperature(), c.call.dropout, c.random(false, t)};
  const Variable found =
      lists_attention(call, lists, c.heads(q), c.heads(both[0]), c.heads(both[1]));
  return leaky_relu(
      linear(reshape(found, {c.B, c.N, c.A}), c.row(ring_out, t), c.row(ring_out_bias, t)));
}

// The new s [B, 1, d]. `hidden` [B, 1, N] is added to the scores of h, if there are lengths.
Variable relay(const Star& c, i64 t, const Variable& s, const Variable& h, const Tensor& hidden) {
  const auto by_head = [&](i64 part) {  // [H, d, E]
    const Variable weight = c.columns(star_qkv, t, part, part + 1);
    return transpose(reshape(weight, {c.d, c.H, c.E}), 0, 1);
  };
  const auto vectors = [&](i64 part) { return c.columns(star_qkv_bias, t, part, part + 1); };
  const Variable q = linear(s, c.columns(star_qkv, t, 0, 1), vectors(0));
  const Variable turned = transpose(reshape(q, {c.B, c.H, c.E}), 0, 1);             // [H, B, E]
  const Variable u = transpose(matmul(turned, transpose(by_head(1), 1, 2)), 0, 1);  // [B, H, d]
  const Variable scaled = scale(u, c.temperature());
  Variable z = matmul(scaled, transpose(h, 1, 2));
  if (hidden.defined()) z = add(z, hidden);
  const Variable all = softmax(concatenate(std::vector{matmul(scaled, transpose(s, 1, 2)), z}, 2));
  const Variable a = dropout(all, c.call.dropout, c.random(true, t));  // [B, H, 1 + N]
  const Variable mixed =
      add(matmul(slice(a, 2, 0, 1), s), matmul(slice(a, 2, 1, 1 + c.N), h));  // [B, H, d]
  const Variable values = transpose(matmul(transpose(mixed, 0, 1), by_head(2)), 0, 1);
  const Variable biases = mul(column(sum(a, 2)), reshape(vectors(2), {c.H, c.E}));
  const Variable r = reshape(add(values, biases), {c.B, 1, c.A});
  return leaky_relu(linear(r, c.row(star_out, t), c.row(star_out_bias, t)));
}

Attended attend_star(const AttentionSpec& spec, const AttentionCall& call,
                     std::span<const Variable> inputs) {
  const Star c(spec, call, inputs);
  if (c.B * c.N == 0) return with_zero_gradients(c.x(), inputs.subspan(1));
  const Variable e = within_lengths(c.x(), call.lengths);
  Variable h = e;
  Variable s =
      reshape(block_mean(reshape(e, {c.B, c.N, 1, c.d}), c.N, call.lengths), {c.B, 1, c.d});
  if (c.T == 1) s = c.without_relay(s);
  Tensor hidden;  // 0 for a position, −∞ beyond the lengths
  if (call.lengths.defined()) {
    const Tensor ones = Tensor::full({c.B, c.N}, 1, e.value().dtype(), e.value().device());
    hidden = log(within_lengths(ones, call.lengths)).value().reshape({c.B, 1, c.N});
  }
  const std::shared_ptr<const EdgeListTensors> lists = rings(c);
  for (i64 t = 0; t < c.T; ++t) {
    h = satellites(c, t, lists, h, e, s);
    if (t + 1 < c.T) s = relay(c, t, s, h, hidden);
  }
  return within_lengths(h, call.lengths);
}

// One step of the definition for the n positions of an item: h, e [1, n, d] and s [1, 1, d].
struct DefinedStar {
  const Star& c;
  i64 b, n;

  Variable map(const Variable& rows, int input, i64 t) const {
    return add(matmul(rows, c.row(input, t)), c.row(input + 1, t));
  }
  Variable part(const Variable& qkv, i64 which) const {
    return slice(qkv, 2, which * c.A, (which + 1) * c.A);
  }
  // Rows i + by, around the ring; if it is open, missing ones are zeros.
  Variable neighbours(const Variable& rows, i64 by) const {
    std::vector<i64> index;
    const Tensor there = Tensor::full({1, n, 1}, 1, rows.value().dtype());
    for (i64 i = 0; i < n; ++i) {
      index.push_back((i + by + n) % n);
      if (!c.closed() && (i + by < 0 || i + by >= n)) there.slice(1, i, i + 1).fill(0);
    }
    return mul(gather(rows, 1, Tensor::from(index, {1, n, 1})), there);
  }
  // This item's and head's rows of a dropout mask [B, H, rows, columns].
  Variable mask(bool relay, i64 t, i64 rows, i64 columns) const {
    const Tensor ones = Tensor::full({c.B, c.H, rows, columns}, 1, c.x().value().dtype());
    return slice(dropout(ones, c.call.dropout, c.random(relay, t)), 0, b, b + 1);
  }

  Variable satellites(i64 t, const Variable& h, const Variable& e, const Variable& s) const {
    const Variable g = layer_norm(h, c.row(gain, t), c.row(bias, t), epsilon);
    const Variable of_g = map(g, ring_qkv, t), of_e = map(e, ring_qkv, t);
    const Variable of_s = expand(map(s, ring_qkv, t), {1, n, 3 * c.A});
    const auto five = [&](i64 which) {
      const Variable own = part(of_g, which);
      return std::vector<Variable>{neighbours(own, -1), own, neighbours(own, 1), part(of_e, which),
                                   part(of_s, which)};
    };
    std::vector<Variable> scores;
    for (const Variable& k : five(1)) {
      scores.push_back(column(sum(c.heads(mul(part(of_g, 0), k)), -1)));  // [1, n, H, 1]
    }
    const Variable a = softmax(scale(concatenate(scores, 3), c.temperature()));
    const Variable left = transpose(slice(mask(false, t, c.N, 5), 2, 0, n), 1, 2);  // [1, n, H, 5]
    const Variable weights = mul(a, left);
    Variable o;
    i64 at = 0;
    for (const Variable& v : five(2)) {
      const Variable term = mul(slice(weights, 3, at, at + 1), c.heads(v));
      o = at++ == 0 ? term : add(o, term);
    }
    return leaky_relu(map(reshape(o, {1, n, c.A}), ring_out, t));
  }

  Variable relay(i64 t, const Variable& s, const Variable& h) const {
    const Variable all = map(concatenate(std::vector{s, h}, 1), star_qkv, t);
    const auto by_head = [&](i64 which) { return transpose(c.heads(part(all, which)), 1, 2); };
    const Variable q = slice(by_head(0), 2, 0, 1);
    const Variable a = softmax(
        scale(matmul(q, transpose(by_head(1), 2, 3)), c.temperature()));  // [1, H, 1, 1 + n]
    const Variable left = slice(mask(true, t, 1, 1 + c.N), 3, 0, 1 + n);
    const Variable r = reshape(matmul(mul(a, left), by_head(2)), {1, 1, c.A});
    return leaky_relu(map(r, star_out, t));
  }
};

Attended reference_star(const AttentionSpec& spec, const AttentionCall& call,
                        std::span<const Variable> inputs) {
  const Star c(spec, call, inputs);
  return item_by_item(c.x(), call.lengths, c.d, [&](i64 b, const Variable& e) {
    const DefinedStar item{c, b, e.size(1)};
    Variable h = e, s = reshape(mean(e, 1), {1, 1, c.d});
    if (c.T == 1) s = c.without_relay(s);
    for (i64 t = 0; t < c.T; ++t) {
      h = item.satellites(t, h, e, s);
      s = item.relay(t, s, h);
    }
    return h;
  });
}

AttentionInputs star_inputs(const AttentionSpec& spec, const AttentionSizes& s) {
  const i64 T = spec.integer("steps"), A = spec.integer("heads") * head_width(spec, s), d = s.d;
  AttentionInputs inputs{{.name = "x", .role = Role::sequence, .axes = "B N d"}};
  inputs.push_back(learnt("norm_gain", "steps d", {T, d}, {Initializer::constant, 1}));
  inputs.push_back(learnt("norm_bias", "steps d", {T, d}, {Initializer::zeros}));
  const Initializer from_d = uniform_by_fan_in(d), from_A = uniform_by_fan_in(A);
  for (const std::string of : {"ring", "star"}) {
    inputs.push_back(learnt(of + "_qkv", "steps d 3·heads·head_width", {T, d, 3 * A}, from_d));
    inputs.push_back(learnt(of + "_qkv_bias", "steps 3·heads·head_width", {T, 3 * A}, from_d));
    inputs.push_back(learnt(of + "_out", "steps heads·head_width d", {T, A, d}, from_A));
    inputs.push_back(learnt(of + "_out_bias", "steps d", {T, d}, from_A));
  }
  return inputs;
}

// The bytes are those of backward through the last step, where the gradients of x and of the
// parameters do not exist yet.
AttentionCost cost_star(const AttentionSpec& spec, const AttentionSizes& s, bool, DType type) {
  const i64 E = head_width(spec, s), H = spec.integer("heads");
  const EdgeListSizes lists = graph_sizes(1, s.N, spec.word("ends") == "ring");
  const AttentionSizes inner{.B = s.B, .N = s.N, .S = lists.keys, .H = H, .E = E, .M = E};
  const double item = double(size_of(type)), B = double(s.B), d = double(s.d), A = double(H * E);
  const double rows = double(s.B * s.N), keys = double(s.B * lists.keys);
  const double T = double(spec.integer("steps")), weights = B * double(H * (s.N + 1));
  const double maps = 2 * d * A * (rows + B * double(2 * s.N + 1));  // of the satellites, a step
  const double relay = 2 * weights * d + 4 * B * d * A;
  AttentionCost cost = lists_cost(inner, lists, 0, type);
  cost.forward_operations = T * (cost.forward_operations + 2 * maps) + (T - 1) * 2 * relay;
  cost.backward_operations = T * (cost.backward_operations + 4 * maps) + (T - 1) * 4 * relay;
  cost.exponentials = T * cost.exponentials + (T - 1) * weights;
  // There is one set of lists; the last h is the output.
  const double step = rows * (2 * d + 1 + 2 * A) + 2 * keys * A + 3 * d * A;
  cost.saved_bytes += (T - 1) * (cost.saved_bytes - lists.bytes());
  cost.saved_bytes += item * (T * step + (T - 1) * (rows * d + weights + d * A));
  const double learnt = double(count_of(star_inputs(spec, s), Role::parameter));
  // While lists run backward there are the gradients of queries, keys, values and the ring's output
  // map. In the map of g behind them, three gradients of an x, those of keys and values, all of the
  // ring's, and on the CPU sums of the map's, a block of 128 rows each; what the lists kept of a
  // step is gone.
  const double in_lists = item * (rows * A + 2 * keys * A + T * d * A);
  const double in_map = item * (3 * rows * (d - A) + 2 * keys * A + 4 * T * d * A);
  const double sums = item * double(row_parts(s.B * s.N, 128)) * 2 * d * A;
  const double results = item * (rows * d + learnt);
  cost.working_bytes =
      std::max({cost.working_bytes + in_lists - results, in_map + sums - results, 0.0});
  cost.cuda_working_bytes =
      std::max({cost.cuda_working_bytes + in_lists - results, in_map - results, 0.0});
  return cost;
}

const Registration registered_star{Mechanism{
    .name = "star",
    .title = "attention of each position to its neighbours and a relay, and of that to all",
    .paper = "Q. Guo et al., Star-Transformer, NAACL 2019, arXiv 1902.09113",
    .equations = "section 3, algorithm 1",
    .kind = Kind::block,
    .inputs = star_inputs,
    .options = {{.name = "steps",
                 .initial = "2",
                 .help =
                     "T: times that satellites and relay are updated, with weights of their own",
                 .least = 1,
                 .most = 24,
                 .tried = {"3"}},
                {.name = "heads",
                 .initial = "4",
                 .help = "heads of each attention",
                 .least = 1,
                 .most = 1 << 16,
                 .tried = {"1"}},
                {.name = "head_width",
                 .initial = "0",
                 .help = "E: width of a head; 0: floor(d / heads)",
                 .least = 0,
                 .most = 1 << 16,
                 .tried = {"5"}},
                {.name = "ends",
                 .initial = "ring",
                 .help = "neighbours of the first and the last position: each other, or zeros",
                 .choices = {"ring", "zero"}}},
    .masks = {.lengths = true},
    .scaling = "N",
    .attend = attend_star,
    .reference = reference_star,
    .cost = cost_star}};

}  // namespace
}  // namespace weft
