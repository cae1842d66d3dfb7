// Sinkformer: the op on passes with potentials, the definition and the fact sheet. Equations:
// sinkformer.h.
#include "ops/attention/sinkformer/sinkformer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/apply.h"
#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/attention.h"
#include "ops/attention/engines/pairs/potentials.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

bool detaches(const AttentionSpec& spec) { return spec.integer("detach_columns") == 1; }

struct SinkformerOp {
  static constexpr const char* name = "sinkformer";
  double temperature;
  i64 iterations;
  bool detach;
  AttentionCall call;

  // u [R, B, H, N] and v [C, B, H, S].
  struct Saved {
    Tensor q, k, v, out, rows, columns;
  };

  template <class T>
  Potentials<T> problem(const Saved& saved) const {
    return {.q = saved.q.view<const T, 4>(),
            .k = saved.k.view<const T, 4>(),
            .v = saved.v.view<const T, 4>(),
            .lengths = numbers_of(call.lengths),
            .query_lengths = numbers_of(call.query_lengths),
            .temperature = static_cast<T>(temperature),
            .iterations = iterations,
            .detach = detach,
            .dropout = call.dropout,
            .random = call.random};
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v) const {
    const i64 B = q.size(0), N = q.size(1), H = q.size(2);
    saved = {.q = q,
             .k = k,
             .v = v,
             .out = Tensor::empty({B, N, H, v.size(3)}, q.dtype(), q.device()),
             .rows = Tensor::empty({(iterations + 1) / 2, B, H, N}, q.dtype(), q.device()),
             .columns = Tensor::empty({iterations / 2, B, H, k.size(1)}, q.dtype(), q.device())};
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      PotentialsKernels<decltype(device), T>::forward(
          device, problem<T>(saved), saved.out.view<T, 4>(), saved.rows.view<T, 4>(),
          saved.columns.view<T, 4>());
    });
    return saved.out;
  }

  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dout) const {
    const Tensor dq = Tensor::empty_like(saved.q), dk = Tensor::empty_like(saved.k);
    const Tensor dv = Tensor::empty_like(saved.v);
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      PotentialsKernels<decltype(device), T>::backward(
          device, problem<T>(saved), saved.out.view<const T, 4>(), saved.rows.view<const T, 4>(),
          saved.columns.view<const T, 4>(), dout.view<const T, 4>(), dq.view<T, 4>(),
          dk.view<T, 4>(), dv.view<T, 4>());
    });
    return {dq, dk, dv};
  }
};

Attended attend_sinkformer(const AttentionSpec& spec, const AttentionCall& call,
                           std::span<const Variable> inputs) {
  const SinkformerOp op{temperature_of(spec, inputs[0].size(3)), spec.integer("iterations"),
                        detaches(spec), call};
  return apply(op, inputs[0], inputs[1], inputs[2]);
}

// log(n/s) of every item, [B, 1, 1]; 0 where one of them is 0.
Tensor log_share(const AttentionCall& call, i64 B, i64 N, i64 S, DType type) {
  std::vector<double> shares;
  for (i64 b = 0; b < B; ++b) {
    const i64 n = length_of(call.query_lengths, b, N), s = length_of(call.lengths, b, S);
    shares.push_back(n > 0 && s > 0 ? std::log(double(n) / double(s)) : 0);
  }
  return Tensor::from(shares, {B, 1, 1}).to(type);
}

Attended reference_sinkformer(const AttentionSpec& spec, const AttentionCall& call,
                              std::span<const Variable> inputs) {
  const Variable q = transpose(inputs[0], 1, 2), k = transpose(inputs[1], 1, 2);
  const i64 B = q.size(0), N = q.size(2), S = k.size(2);
  const DType type = q.value().dtype();
  const Tensor share = log_share(call, B, N, S, type);
  // Of what is not there a log-sum-exp is −∞, which this bounds.
  const Variable least = Tensor::full({}, -1e30, type);
  const Variable products = scale(matmul(q, transpose(k, 2, 3)), temperature_of(spec, q.size(3)));
  Variable z = masked(products, visibility(call, B, N, S));  // z + u + v on the way
  for (i64 t = 1; t <= spec.integer("iterations"); ++t) {
    if (t % 2 == 1) {
      z = sub(z, column(maximum(least, log_sum_exp(z))));
      continue;
    }
    const Variable turned = transpose(z, 2, 3);
    Variable sums = maximum(least, log_sum_exp(turned));
    if (detaches(spec)) sums = sums.detached();
    z = transpose(sub(turned, column(sub(sums, share))), 2, 3);
  }
  const Variable a = dropout(exp(z), call.dropout, call.random);
  return transpose(matmul(a, transpose(inputs[2], 1, 2)), 1, 2);
}

AttentionCost cost_sinkformer(const AttentionSpec& spec, const AttentionSizes& s, bool,
                              DType type) {
  const double item = double(size_of(type)), heads = double(s.B * s.H);
  const double N = double(s.N), S = double(s.S), E = double(s.E), M = double(s.M);
  const i64 T = spec.integer("iterations"), R = (T + 1) / 2, C = T / 2;
  const double rows = double(R), columns = double(C), side = double(tile_side);
  const bool constant = detaches(spec) || C == 0;
  const double passes = constant ? 0 : columns, terms = constant ? 1 : double(T);
  const double products = (passes + 3) * E + (2 + terms / E) * M;
  // Forward has its memory while the gradients have none.
  const double packed = (N + S) * (E + 2);
  const double forward =
      C == 0 ? 0
             : heads * (N + S) * (E + 1) + S * (E + M + 1) - heads * (N + S) * E - heads * S * M;
  const double backward = packed + N * (2 * (E + M) + terms + rows + 1 + (constant ? 0 : side)) +
                          S * columns + side * (2 * E + 2 * M + terms + 2 * side);
  return {.forward_operations = 2 * heads * N * S * ((columns + 1) * E + M),
          .backward_operations = 2 * heads * N * S * products,
          .exponentials = heads * N * S * (2 * columns + 1 + passes + 1),
          .saved_bytes = item * heads * (rows * N + columns * S),
          .working_bytes = item * std::max(forward, backward),
          .cuda_working_bytes =
              item * heads * ((rows + terms) * N + (columns + terms + (constant ? 0 : 1)) * S)};
}

const Registration registered{Mechanism{
    .name = "sinkformer",
    .title = "softmax attention normalised along rows and columns in turn",
    .paper =
        "M. Sander et al., Sinkformers: transformers with doubly stochastic attention, AISTATS "
        "2022, arXiv 2110.11773",
    .equations = "section 3",
    .inputs = query_key_value,
    .options = {{.name = "iterations",
                 .initial = "3",
                 .help = "half steps: odd ones normalise rows, even ones columns; 1: softmax",
                 .least = 1,
                 .most = 1000,
                 .tried = {"1", "2", "5"}},
                {.name = "detach_columns",
                 .initial = "0",
                 .help = "1: the columns' scales are constants for backward",
                 .least = 0,
                 .most = 1,
                 // With 1 gradients are no differences of outputs: tests/attention/sinkformer.cpp.
                 .tried = {"0"}},
                temperature_option()},
    .masks = {.lengths = true, .query_lengths = true},
    .cross = true,
    .unordered_keys = true,
    .linear_in_values = true,
    .scaling = "N S",
    .attend = attend_sinkformer,
    .reference = reference_sinkformer,
    .cost = cost_sinkformer}};

}  // namespace
}  // namespace weft
