// The order of blocks, attention to two of them, definition and fact sheet. Equations: sinkhorn.h.
#include "ops/attention/sinkhorn/sinkhorn.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/scores.h"
#include "ops/blocks/blocks.h"
#include "ops/cast/cast.h"
#include "ops/cumulative_sum/cumulative_sum.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/normals/normals.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace weft {
namespace {

constexpr double least_score = 1e-6;  // added to R before the logarithm

bool is_simple(const AttentionSpec& spec) { return spec.word("sort") == "simple"; }

// A call, and its sizes.
struct Sinkhorn {
  const AttentionSpec& spec;
  const AttentionCall& call;
  std::span<const Variable> inputs;
  i64 B = q().size(0), N = q().size(1), H = q().size(2), E = q().size(3), M = v().size(3);
  i64 b = spec.integer("block"), n = N / b;

  const Variable& q() const { return inputs[0]; }
  const Variable& k() const { return inputs[1]; }
  const Variable& v() const { return inputs[2]; }
  const Variable& sort_weight() const { return inputs[3]; }
  const Variable& null_k() const { return inputs[inputs.size() - 2]; }
  const Variable& null_v() const { return inputs.back(); }
  double temperature() const { return temperature_of(spec, E); }
  double sort_temperature() const { return spec.number("sort_temperature"); }
  Tensor full(const Shape& shape, double value) const {
    return Tensor::full(shape, value, q().value().dtype(), q().value().device());
  }
  Tensor noise() const;
  Tensor picked() const;
};

// [B, H, n, n]; undefined: none. Twice an exponential variable is the sum of the squares of two
// normal ones.
Tensor Sinkhorn::noise() const {
  const Shape shape{B, H, n, n};
  Tensor noise = given_choice(spec.mechanism(), call, "noise", shape, q().value().dtype());
  if (!noise.defined() && call.training) {
    const Tensor normals = full({B, H, n, n, 2}, 0);
    draw_normals(call.random.further(DrawPurpose::sort_noise), 2, normals,
                 call.random.first_example * H * n * n * 2);
    const Variable squares = mul(normals, normals);
    noise = scale(log(scale(sum(squares, -1), 0.5)), -1).value();
  }
  if (noise.defined()) report_choice(call, "noise", noise);
  return noise;
}

// The given choice, checked; undefined: none.
Tensor Sinkhorn::picked() const {
  const Tensor given = given_choice(spec.mechanism(), call, "picked", {B, H, n});
  if (!given.defined()) return {};
  const std::vector<i64> numbers = given.to(Device{}).to_vector<i64>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const i64 place = static_cast<i64>(i), s = place % n;
    require(-1 <= numbers[i] && numbers[i] < s,
            "sinkhorn: the given picked[{}, {}, {}] is {}; wanted a block before block {}, or -1",
            place / n / H, place / n % H, s, numbers[i], s);
  }
  return given;
}

// x [B, N, H, W] by blocks and heads, [B, H, n, b·W]; and the inverse.
Variable by_block(const Sinkhorn& c, const Variable& x) {
  const Variable heads = transpose(reshape(x, {c.B, c.n, c.b, c.H, x.size(3)}), 2, 3);
  return reshape(transpose(heads, 1, 2), {c.B, c.H, c.n, c.b * x.size(3)});
}
Variable by_position(const Sinkhorn& c, const Variable& x) {
  return transpose(reshape(x, {c.B, c.H, c.N, x.size(3) / c.b}), 1, 2);
}

// Minus the log-sum-exp of each row.
Variable normalised(const Variable& z) { return sub(z, column(log_sum_exp(z))); }

// P [B, H, n, n] without `causal`. In f64, since R near 0 has a slope of up to 1e6.
Variable order_of(const Sinkhorn& c) {
  const auto means = [&](const Variable& x) {
    return transpose(cast(block_mean(x, c.b), DType::f64), 1, 2);
  };
  const Variable mean_q = means(c.q()), mean_k = means(c.k());
  Variable scores;
  if (is_simple(c.spec)) {
    const Variable both[] = {mean_q, mean_k};
    const Variable sums = scale(concatenate(both, 3), double(c.b));
    scores = matmul(sums, cast(slice(c.sort_weight(), 2, 0, c.n), DType::f64));
  } else {
    scores = scale(matmul(mean_q, transpose(mean_k, 2, 3)), 1 / std::sqrt(double(c.E)));
  }
  const Tensor least = Tensor::full({}, least_score, DType::f64, c.q().value().device());
  Variable z = log(add(relu(scores), least));
  if (const Tensor noise = c.noise(); noise.defined()) z = add(z, noise.to(DType::f64));
  z = scale(z, 1 / c.sort_temperature());
  for (i64 t = 0; t < c.spec.integer("iterations"); ++t) {
    z = transpose(normalised(transpose(normalised(z), 2, 3)), 2, 3);
  }
  return cast(exp(z), c.q().value().dtype());
}

// 0 if candidate t of block s exists, otherwise −∞, [n, n + 1]: candidate 0 is the null block, the
// others are blocks 0 … s − 1. Computed on the device of the inputs, so that nothing waits for the
// host.
Variable candidates(const Sinkhorn& c) {
  const auto count = [&](const Shape& shape, int axis) {
    return cumulative_sum(c.full(shape, 1), axis);
  };
  Variable x = sub(count({1, c.n + 1}, 1), count({c.n, 1}, 0));  // t − s
  x = relu(x);  // frees the table before it, as each line does
  x = sub(c.full({}, 1), x);
  x = relu(x);  // 0 if t > s, else 1
  return log(x);
}

// The weights of the selected blocks [B, H, n, 1], and their indices among candidates.
struct Picked {
  Variable weight;
  Tensor candidate;
};

Picked pick(const Sinkhorn& c) {
  const Variable positions = cumulative_sum(c.full({c.N, 1, 1}, 1), 0);
  const auto mean_so_far = [&](const Variable& x) { return div(cumulative_sum(x, 1), positions); };
  const Variable begin = slice(reshape(mean_so_far(c.q()), {c.B, c.n, c.b, c.H, c.E}), 2, 0, 1);
  const Variable query = transpose(reshape(begin, {c.B, c.n, c.H, c.E}), 1, 2);
  const Variable key = transpose(block_mean(mean_so_far(c.k()), c.b), 1, 2);
  const Variable products = scale(matmul(query, transpose(key, 2, 3)),
                                  double(c.b) / std::sqrt(double(c.E)) / c.sort_temperature());
  const Variable all[] = {c.full({c.B, c.H, c.n, 1}, 0), products};
  const Variable w = softmax(add(concatenate(all, 3), candidates(c)));  // [B, H, n, n + 1]
  const Tensor one = Tensor::full({1}, 1, DType::f64, c.q().value().device());
  Tensor candidate;
  if (const Tensor given = c.picked(); given.defined()) {
    candidate = add(given.to(DType::f64), one).value().to(DType::i64);
  } else {
    // The candidates as positions of one block: the first of the largest.
    const Tensor rows = w.value().reshape({c.B * c.H * c.n, c.n + 1, 1, 1});
    BlockMaximum::Saved saved;
    BlockMaximum{c.n + 1, {}}.forward(saved, rows);
    candidate = saved.positions.reshape({c.B, c.H, c.n});
  }
  if (c.call.chosen != nullptr) {
    report_choice(c.call, "picked", sub(candidate.to(DType::f64), one).value().to(DType::i64));
  }
  candidate = candidate.reshape({c.B, c.H, c.n, 1});
  return {gather(w, 3, candidate), candidate};
}

// k' or v' of x [B, N, H, W], and of the row null [H, W] that is used at all positions of a block.
Variable picked_blocks(const Sinkhorn& c, const Picked& picked, const Variable& x,
                       const Variable& null) {
  const i64 W = x.size(3);
  const Variable ones = c.full({c.B, c.H, 1, c.b, W}, 1);
  const Variable row = mul(ones, reshape(null, {1, c.H, 1, 1, W}));
  const Variable blocks[] = {reshape(row, {c.B, c.H, 1, c.b * W}), by_block(c, x)};
  return by_position(c, mul(gather(concatenate(blocks, 2), 2, picked.candidate), picked.weight));
}

Attended attend_sinkhorn(const AttentionSpec& spec, const AttentionCall& call,
                         std::span<const Variable> inputs) {
  const Sinkhorn c{spec, call, inputs};
  PairsSource sorted, own{c.k(), c.v()};
  Band seen = Band::blocks(c.b);
  if (call.causal) {
    const Picked picked = pick(c);
    sorted = {picked_blocks(c, picked, c.k(), c.null_k()),
              picked_blocks(c, picked, c.v(), c.null_v())};
    seen.end = Band::causal().end;
  } else {
    const Variable order = order_of(c);
    sorted = {by_position(c, matmul(order, by_block(c, c.k()))),
              by_position(c, matmul(order, by_block(c, c.v())))};
  }
  const PairsSource sources[] = {sorted, own};
  const PairsPart parts[] = {{.band = Band::blocks(c.b)}, {.band = seen, .source = 1}};
  return pairs_attention({"sinkhorn", c.temperature(), {}, call.dropout, call.random}, c.q(),
                         sources, parts);
}

// The definition. The order is in plain ops already; here it becomes a matrix over positions. With
// `causal` P is [B, H, n, n + 1], the null block first.
Variable picked_order(const Sinkhorn& c) {
  const Picked picked = pick(c);
  const Tensor one = Tensor::zeros({c.B * c.H * c.n, c.n + 1}, DType::f64);
  for (i64 row = 0; row < one.size(0); ++row) {
    one.view<double, 2>()(row, picked.candidate.data<i64>()[row]) = 1;
  }
  const Tensor places = one.reshape({c.B, c.H, c.n, c.n + 1});
  return mul(picked.weight, places.to(c.q().value().dtype()));
}

// k' or v' of x.
Variable defined_blocks(const Sinkhorn& c, const Variable& P, const Variable& x,
                        const Variable& null) {
  std::vector<i64> block;
  const Tensor same = Tensor::zeros({1, 1, c.N, c.N}, DType::f64);  // the same offset in the block
  for (i64 i = 0; i < c.N; ++i) {
    block.push_back(i / c.b);
    for (i64 j = i % c.b; j < c.N; j += c.b) same.view<double, 4>()(0, 0, i, j) = 1;
  }
  const Variable rows = gather(P, 2, Tensor::from(block, {1, 1, c.N, 1}));
  const i64 first = c.call.causal ? 1 : 0;
  const Variable blocks =
      gather(slice(rows, 3, first, first + c.n), 3, Tensor::from(block, {1, 1, 1, c.N}));
  Variable mixed = matmul(mul(blocks, same.to(x.value().dtype())), transpose(x, 1, 2));
  if (c.call.causal) {
    const Variable row = reshape(null, {1, c.H, 1, x.size(3)});
    mixed = add(mixed, mul(slice(rows, 3, 0, 1), row));
  }
  return transpose(mixed, 1, 2);
}

Attended reference_sinkhorn(const AttentionSpec& spec, const AttentionCall& call,
                            std::span<const Variable> inputs) {
  const Sinkhorn c{spec, call, inputs};
  const Variable P = call.causal ? picked_order(c) : order_of(c);
  const Variable keys[] = {defined_blocks(c, P, c.k(), c.null_k()), c.k()};
  const Variable values[] = {defined_blocks(c, P, c.v(), c.null_v()), c.v()};
  const Tensor seen = Tensor::zeros({1, 1, c.N, 2 * c.N}, DType::f64);
  for (i64 i = 0; i < c.N; ++i) {
    for (i64 j = 0; j < c.N; ++j) {
      const bool own = i / c.b == j / c.b;
      seen.view<double, 4>()(0, 0, i, j) = own;
      seen.view<double, 4>()(0, 0, i, c.N + j) = own && (!call.causal || j <= i);
    }
  }
  const i64 second = next_mask_columns(c.N);
  const MaskColumns columns{second + c.N,
                            [&](i64, i64 j) { return j < c.N ? j : second + j - c.N; }};
  return attention_over(seen, c.temperature(), call, c.q(), concatenate(keys, 1),
                        concatenate(values, 1), {}, columns);
}

// Backward of the engine comes first, when the gradients of k' and v' exist beside the results.
AttentionCost cost_sinkhorn(const AttentionSpec& spec, const AttentionSizes& s, bool causal,
                            DType type) {
  const double item = double(size_of(type)), heads = double(s.B * s.H), N = double(s.N);
  const double b = spec.number("block"), n = N / b, E = double(s.E), width = double(s.E + s.M);
  const double half_steps = 2 * spec.number("iterations");
  AttentionCost cost = pairs_cost(s, heads * N * b * (causal ? 1.5 : 2), type);
  const double wide = double(sizeof(double)) / item;  // of f64, and of indices
  // Blocks of one position, and those of one head, are views of the keys and values.
  const double copies = !causal && (b == 1 || s.H == 1) ? 1 : 2;
  const double order = wide * n * n;
  const double kept =
      causal ? 2 * N * E + n * (E + n + 2 + wide) + N / heads
             : order * (half_steps + 3) + (wide > 1 ? n * n : 0) + wide * n * (half_steps + 2 * E);
  cost.saved_bytes += item * heads * (kept + copies * N * width);
  // Later the gradients of one half step of the order, when k' and v' are freed.
  const double gradients = item * heads * N * width;
  const auto later = [&](double matrices) {
    return matrices * item * heads * (causal ? n * n : order) - gradients;
  };
  cost.working_bytes = std::max(cost.working_bytes + gradients, later(3.5));
  const double sums = causal && s.H == 1 ? item * heads * N * double(s.M) : 0;  // of v's gradients
  // The copies of k' and v' are not kept until then, either.
  cost.cuda_working_bytes = std::max(cost.cuda_working_bytes + gradients + sums,
                                     causal ? later(3.5) : later(2.5) - (copies - 1) * gradients);
  const double mixing = 2 * heads * n * (causal ? n * E : N * width + n * E);
  cost.forward_operations += mixing;
  cost.backward_operations += 2 * mixing;
  return cost;
}

AttentionInputs sinkhorn_inputs(const AttentionSpec& spec, const AttentionSizes& s) {
  AttentionInputs inputs = query_key_value(spec, s);
  if (is_simple(spec)) {
    const i64 blocks = s.N_max / spec.integer("block");
    inputs.push_back({.name = "sort_weight",
                      .role = Role::parameter,
                      .axes = "H 2E ⌊N_max/block⌋",
                      .shape = {s.H, 2 * s.E, blocks},
                      .weight = {Initializer::uniform, std::sqrt(6 / double(2 * s.E + blocks))}});
    return inputs;
  }
  for (const auto& [name, axes] : {std::pair("null_k", "H E"), {"null_v", "H M"}}) {
    inputs.push_back({.name = name,
                      .role = Role::parameter,
                      .axes = axes,
                      .weight = {Initializer::normal, 1},
                      .causal = true});
  }
  return inputs;
}

const Registration registered_sinkhorn{Mechanism{
    .name = "sinkhorn",
    .title = "softmax attention inside blocks, and to the blocks that a learnt order brings there",
    .paper = "Y. Tay, D. Bahri, L. Yang, D. Metzler, D. Juan, Sparse Sinkhorn attention, ICML "
             "2020, arXiv 2002.11296",
    .equations = "sections 3 and 4",
    .inputs = sinkhorn_inputs,
    .choices = {{.name = "noise",
                 .shape = "B H n n",
                 .integer = false,
                 .decided =
                     [](const AttentionSpec&, const AttentionCall& call) {
                       return !call.causal && (call.training || call.given.contains("noise"));
                     }},
                {.name = "picked",
                 .shape = "B H n",
                 .decided = [](const AttentionSpec&,
                               const AttentionCall& call) { return call.causal; }}},
    .options = {{.name = "block",
                 .initial = "64",
                 .help = "b: positions of a block; lengths are whole blocks",
                 .least = 1,
                 .most = 1 << 24,
                 .tried = {"4", "32"}},
                {.name = "sort",
                 .initial = "attention",
                 .help = "source of the order: products of the blocks' means, or a learnt matrix",
                 .choices = {"attention", "simple"}},
                {.name = "iterations",
                 .initial = "7",
                 .help = "how often rows and columns of the order are normalised, without `causal`",
                 .least = 1,
                 .most = 1000,
                 .tried = {"2"}},
                {.name = "sort_temperature",
                 .initial = "0.75",
                 .help = "temperature: divisor of the scores of the order",
                 .least = 1e-3,
                 .most = 1e6,
                 .whole = false,
                 .tried = {"2"}},
                temperature_option()},
    .masks = {.causal = true},
    .causal_wants = "sort=attention,iterations=7",
    .multiple_of = "block",
    .strictly_causal = true,
    .scaling = "N b + (N/b)² b",
    .memory = "N + (N/b)²",
    .attend = attend_sinkhorn,
    .reference = reference_sinkhorn,
    .cost = cost_sinkhorn}};

}  // namespace
}  // namespace weft
