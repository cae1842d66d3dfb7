// Bi-BloSAN: the block, its definition and the fact sheet. Equations: biblosa.h.
#include "ops/attention/biblosa/biblosa.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention/biblosa/directed.h"
#include "ops/attention/definitions.h"
#include "ops/attention/scores.h"
#include "ops/blocks/blocks.h"
#include "ops/dropout/dropout.h"
#include "ops/linear/linear.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/row_sums.h"

namespace weft {
namespace {

i64 directions(const AttentionSpec& spec) { return spec.word("direction") == "both" ? 2 : 1; }

enum BlosaMap { map, token, pool, block, block_token, gate, out };  // in the order of the inputs

struct Biblosa {
  const AttentionSpec& spec;
  const AttentionCall& call;
  std::span<const Variable> inputs;
  i64 B, N, C, D, r;

  Biblosa(const AttentionSpec& spec, const AttentionCall& call, std::span<const Variable> inputs)
      : spec(spec),
        call(call),
        inputs(inputs),
        B(x().size(0)),
        N(x().size(1)),
        C(inputs[1].size(2)),
        D(directions(spec)),
        r(std::min(spec.integer("block"), std::max<i64>(N, 1))) {}

  const Variable& x() const { return inputs[0]; }
  bool later(i64 t) const { return t == 1 || spec.word("direction") == "backward"; }
  // The weights of direction t.
  Variable weight(BlosaMap which, i64 t) const {
    return entry_of(inputs[std::size_t(1 + 2 * which)], t);
  }
  Variable bias(BlosaMap which, i64 t) const {
    return entry_of(inputs[std::size_t(2 + 2 * which)], t);
  }
  Variable activated(const Variable& rows) const {
    const std::string& word = spec.word("activation");
    return word == "elu" ? elu(rows) : word == "relu" ? relu(rows) : rows;
  }
  // h [B, n, C] as the input of the scores.
  Variable dropped(const Variable& h, bool between, i64 t) const {
    return dropout(h, call.dropout, attention_key(call.random, 2 * t + (between ? 1 : 0)));
  }
  Variable zeros(const Shape& shape) const {
    return Tensor::zeros(shape, x().value().dtype(), x().value().device());
  }
};

// y + w (x − y)
Variable mixed(const Variable& w, const Variable& x, const Variable& y) {
  return add(y, mul(w, sub(x, y)));
}

// s of h [B, n, C] in blocks of `size` rows.
Variable directed(const Biblosa& c, BlosaMap which, i64 t, const Variable& h, i64 size,
                  const Tensor& lengths) {
  const Variable scores = linear(c.dropped(h, which == block_token, t), c.weight(which, t),
                                 concatenate(std::vector{c.bias(which, t), c.zeros({c.C})}, 0));
  return directed_attention(scores, h, size, c.later(t), lengths);
}

// Direction t of x, which is 0 beyond the lengths: [B, N, C].
Variable in_direction(const Biblosa& c, i64 t, const Variable& x) {
  const i64 n = (c.N + c.r - 1) / c.r, C = c.C;
  const Tensor &lengths = c.call.lengths, blocks = blocks_within(lengths, c.r);
  const auto mapped = [&](const Variable& rows, BlosaMap which) {
    return linear(rows, c.weight(which, t), c.bias(which, t));
  };
  const auto rank4 = [&](const Variable& rows) {
    return reshape(rows, {c.B, rows.size(1), 1, rows.size(2)});
  };
  const Variable h = c.activated(mapped(x, map));
  const Variable s = directed(c, token, t, h, c.r, lengths);
  const Variable v = block_weighted_mean(rank4(s), rank4(mapped(s, pool)), c.r, lengths);
  const Variable m = c.activated(mapped(reshape(v, {c.B, n, C}), block));
  const Variable a = directed(c, block_token, t, m, n, blocks);
  const Variable e = mixed(sigmoid(mapped(concatenate(std::vector{m, a}, 2), gate)), m, a);
  const Variable weight = c.weight(out, t);
  Variable both;
  {
    const Variable own =
        linear(concatenate(std::vector{h, s}, 2), slice(weight, 0, 0, 2 * C), c.bias(out, t));
    const Variable of_block = linear(e, slice(weight, 0, 2 * C, 3 * C));
    both = add_to_blocks(rank4(own), rank4(of_block), c.r, lengths);
  }
  const std::vector<Variable> parts = split(reshape(both, {c.B, c.N, 2 * C}), 2, {C, C});
  return mixed(sigmoid(parts[1]), c.activated(parts[0]), h);
}

Attended attend_biblosa(const AttentionSpec& spec, const AttentionCall& call,
                        std::span<const Variable> inputs) {
  const Biblosa c(spec, call, inputs);
  if (c.B * c.N == 0) {
    return with_zero_gradients(reshape(c.x(), {c.B, c.N, c.D * c.C}), inputs.subspan(1));
  }
  const Variable x = within_lengths(c.x(), call.lengths);
  std::vector<Variable> of;
  for (i64 t = 0; t < c.D; ++t) of.push_back(in_direction(c, t, x));
  return within_lengths(of.size() == 1 ? of[0] : concatenate(of, 2), call.lengths);
}

// The definition, for the positions of one item: rows [n, C].
struct DefinedDirection {
  const Biblosa& c;
  i64 b, t;

  Variable mapped(const Variable& rows, BlosaMap which) const {
    return add(matmul(rows, c.weight(which, t)), c.bias(which, t));
  }
  // A of h, with scores computed from `from`.
  Variable directed(BlosaMap which, const Variable& h, const Variable& from) const {
    const i64 n = h.size(0), C = c.C;
    const Variable pg = matmul(from, c.weight(which, t));
    const Variable p = reshape(add(slice(pg, 1, 0, C), c.bias(which, t)), {1, n, C});
    const Variable g = reshape(slice(pg, 1, C, 2 * C), {n, 1, C});
    const Variable z = scale(tanh(scale(add(p, g), 0.2)), 5);  // [i, j, C]
    const Tensor seen = Tensor::zeros({n, 1, n}, DType::f64);
    for (i64 i = 0; i < n; ++i) {
      seen.slice(0, i, i + 1).slice(2, c.later(t) ? i + 1 : 0, c.later(t) ? n : i).fill(1);
    }
    const Variable weights = softmax(masked(transpose(z, 1, 2), seen));  // [i, C, j]
    return sum(mul(weights, reshape(transpose(h, 0, 1), {1, C, n})), 2);
  }
  // The rows of the mask over all items and positions that belong to this item's n.
  Variable dropped(const Variable& h, bool between) const {
    const i64 n = h.size(0), all = between ? (c.N + c.r - 1) / c.r : c.N;
    const Tensor ones = Tensor::full({c.B, all, c.C}, 1, h.value().dtype());
    const Variable mask = slice(slice(c.dropped(ones, between, t), 0, b, b + 1), 1, 0, n);
    return mul(h, reshape(mask, {n, c.C}));
  }

  Variable operator()(const Variable& x) const {
    const i64 n = x.size(0);
    const Variable h = c.activated(mapped(x, map)), from = dropped(h, false);
    std::vector<Variable> inside, rows;
    for (i64 i = 0; i < n; i += c.r) {
      const i64 end = std::min(i + c.r, n);
      inside.push_back(directed(token, slice(h, 0, i, end), slice(from, 0, i, end)));
      const Variable turned = transpose(inside.back(), 0, 1);
      const Variable logits = transpose(mapped(inside.back(), pool), 0, 1);
      rows.push_back(reshape(sum(mul(softmax(logits), turned), 1), {1, c.C}));
    }
    const Variable s = concatenate(inside, 0), m = c.activated(mapped(concatenate(rows, 0), block));
    const Variable a = directed(block_token, m, dropped(m, true));
    const Variable e = mixed(sigmoid(mapped(concatenate(std::vector{m, a}, 1), gate)), m, a);
    std::vector<Variable> of_block;
    for (i64 i = 0; i < n; ++i) of_block.push_back(slice(e, 0, i / c.r, i / c.r + 1));
    const Variable all[] = {h, s, concatenate(of_block, 0)};
    const Variable both = mapped(concatenate(all, 1), out);
    return mixed(sigmoid(slice(both, 1, c.C, 2 * c.C)), c.activated(slice(both, 1, 0, c.C)), h);
  }
};

Attended reference_biblosa(const AttentionSpec& spec, const AttentionCall& call,
                           std::span<const Variable> inputs) {
  const Biblosa c(spec, call, inputs);
  const i64 width = c.D * c.C;
  return item_by_item(c.x(), call.lengths, width, [&](i64 b, const Variable& x) {
    const i64 n = x.size(1);
    std::vector<Variable> of;
    for (i64 t = 0; t < c.D; ++t) {
      of.push_back(DefinedDirection{c, b, t}(reshape(x, {n, x.size(2)})));
    }
    return reshape(concatenate(of, 1), {1, n, width});
  });
}

AttentionInputs biblosa_inputs(const AttentionSpec& spec, const AttentionSizes& s) {
  const i64 D = directions(spec), C = width_of(spec, s);
  AttentionInputs inputs{{.name = "x", .role = Role::sequence, .axes = "B N d"}};
  // A matrix for each direction, initialised as glorot_uniform, and its biases.
  const auto mapped = [&](const std::string& name, const char* axes, i64 in, i64 columns,
                          const char* of_bias, i64 biases) {
    const double limit = std::sqrt(6 / std::max(double(in + columns), 1.0));
    inputs.push_back(learnt("w_" + name, axes, {D, in, columns}, {Initializer::uniform, limit}));
    inputs.push_back(learnt("b_" + name, of_bias, {D, biases}, {Initializer::zeros}));
  };
  mapped("map", "D d width", s.d, C, "D width", C);
  mapped("token", "D width 2·width", C, 2 * C, "D width", C);
  mapped("pool", "D width width", C, C, "D width", C);
  mapped("block", "D width width", C, C, "D width", C);
  mapped("block_token", "D width 2·width", C, 2 * C, "D width", C);
  mapped("gate", "D 2·width width", 2 * C, C, "D width", C);
  mapped("out", "D 3·width 2·width", 3 * C, 2 * C, "D 2·width", 2 * C);
  return inputs;
}

// The pairs of all blocks of `size` positions, of which the last may be short.
double pairs_of(i64 positions, i64 size) {
  const auto inside = [](i64 n) { return double(n) * double(n - 1) / 2; };
  return double(positions / size) * inside(size) + inside(positions % size);
}

// The bytes are those of backward through the gate of the output, or through w_out, whose gradient
// several threads accumulate, before the gradients of x and of the parameters exist.
AttentionCost cost_biblosa(const AttentionSpec& spec, const AttentionSizes& s, bool, DType type) {
  const i64 r = std::min(spec.integer("block"), std::max<i64>(s.N, 1)), n = (s.N + r - 1) / r;
  const bool plain = spec.word("activation") == "linear";
  const double item = double(size_of(type)), D = double(directions(spec)), B = double(s.B);
  const double C = double(width_of(spec, s)), d = double(s.d);
  const double rows = B * double(s.N), blocks = B * double(n), all = rows + blocks;
  const double maps = rows * C * (d + 7 * C) + blocks * 7 * C * C;
  const double pairs = B * C * (pairs_of(s.N, r) + pairs_of(n, n));
  const double sums = double(row_parts(s.B * s.N, 128)) * C * (4 * C + 2) + 10 * C * C;
  const double gate = (D == 2 ? 4 : 3) * rows * C, map = (plain ? 3 : 2) * rows * C;
  const double missing = rows * d + double(count_of(biblosa_inputs(spec, s), Role::parameter));
  AttentionCost cost;
  cost.forward_operations = D * (2 * maps + 3 * pairs);
  cost.backward_operations = D * (4 * maps + 12 * pairs);
  // Of pairs, their factors, pooling, activations and gates.
  cost.exponentials = D * (2 * pairs + 4 * all * C + 3 * rows * C + (plain ? 1 : 3) * rows * C +
                           (plain ? 1 : 2) * blocks * C);
  cost.saved_bytes = D * item * C * (11 * all - (plain ? rows : 0));
  cost.working_bytes = item * std::max(std::max(gate, map + sums) - missing, 0.0);
  cost.cuda_working_bytes = item * std::max(std::max(gate, map) - missing, 0.0);
  return cost;
}

const Registration registered_biblosa{Mechanism{
    .name = "biblosa",
    .title = "attention with weights of each feature's own, inside blocks and between them",
    .paper = "T. Shen, T. Zhou, G. Long, J. Jiang, C. Zhang, Bi-directional block self-attention "
             "for fast and memory-efficient sequence modeling, ICLR 2018, arXiv 1804.00857",
    .equations = "section 3",
    .kind = Kind::block,
    .inputs = biblosa_inputs,
    .out_width = [](const AttentionSpec& spec,
                    const AttentionSizes& s) { return directions(spec) * width_of(spec, s); },
    .options = {{.name = "block",
                 .initial = "5",
                 .help = "r: positions of a block",
                 .least = 1,
                 .most = 1 << 24,
                 .tried = {"2", "200"}},
                {.name = "direction",
                 .initial = "both",
                 .help = "positions that one sees: those before it, those after it, or each in one "
                         "half of out",
                 .choices = {"both", "forward", "backward"}},
                {.name = "activation",
                 .initial = "elu",
                 .help = "activation of the maps of positions and blocks",
                 .choices = {"elu", "relu", "linear"}},
                {.name = "width",
                 .initial = "0",
                 .help = "C: width of out in one direction; 0: d",
                 .least = 0,
                 .most = 1 << 20,
                 .tried = {"6"}}},
    .masks = {.lengths = true},
    .scaling = "N r + (N/r)²",
    .attend = attend_biblosa,
    .reference = reference_biblosa,
    .cost = cost_biblosa}};

}  // namespace
}  // namespace weft
