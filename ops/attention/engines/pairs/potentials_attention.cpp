// The op on the passes with potentials, and its definition. Equations: potentials.h.
#include "ops/attention/engines/pairs/potentials_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "autograd/apply.h"
#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/few_queries.h"
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

struct PotentialsOp {
  PotentialsCall call;
  const char* name = call.name;

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
            .temperature = static_cast<T>(call.temperature),
            .iterations = call.iterations,
            .detach = call.detach,
            .dropout = call.dropout,
            .random = call.random};
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v) const {
    const i64 B = q.size(0), N = q.size(1), H = q.size(2);
    saved = {
        .q = q,
        .k = k,
        .v = v,
        .out = Tensor::empty({B, N, H, v.size(3)}, q.dtype(), q.device()),
        .rows = Tensor::empty({(call.iterations + 1) / 2, B, H, N}, q.dtype(), q.device()),
        .columns = Tensor::empty({call.iterations / 2, B, H, k.size(1)}, q.dtype(), q.device())};
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

// log(n/s) of every item, [B, 1, 1]; 0 if one of them is 0.
Tensor log_share(const PotentialsCall& call, i64 B, i64 N, i64 S, DType type) {
  std::vector<double> shares;
  for (i64 b = 0; b < B; ++b) {
    const i64 n = length_of(call.query_lengths, b, N), s = length_of(call.lengths, b, S);
    shares.push_back(n > 0 && s > 0 ? std::log(double(n) / double(s)) : 0);
  }
  return Tensor::from(shares, {B, 1, 1}).to(type);
}

}  // namespace

Variable potentials_attention(const PotentialsCall& call, const Variable& q, const Variable& k,
                              const Variable& v) {
  return apply(PotentialsOp{call}, q, k, v);
}

Variable potentials_definition(const PotentialsCall& call, const Variable& queries,
                               const Variable& keys, const Variable& values) {
  const Variable q = transpose(queries, 1, 2), k = transpose(keys, 1, 2);
  const i64 B = q.size(0), N = q.size(2), S = k.size(2);
  const DType type = q.value().dtype();
  const AttentionCall masks{.lengths = call.lengths, .query_lengths = call.query_lengths};
  const Tensor share = log_share(call, B, N, S, type);
  // The log-sum-exp of nothing is −∞, which this bounds.
  const Variable least = Tensor::full({}, -1e30, type);
  const Variable products = scale(matmul(q, transpose(k, 2, 3)), call.temperature);
  Variable z = masked(products, visibility(masks, B, N, S));  // z + u + v, step by step
  for (i64 t = 1; t <= call.iterations; ++t) {
    if (t % 2 == 1) {
      z = sub(z, column(maximum(least, log_sum_exp(z))));
      continue;
    }
    const Variable turned = transpose(z, 2, 3);
    Variable sums = maximum(least, log_sum_exp(turned));
    if (call.detach) sums = sums.detached();
    z = transpose(sub(turned, column(sub(sums, share))), 2, 3);
  }
  const Variable a = dropout(exp(z), call.dropout, call.random);
  return transpose(matmul(a, transpose(values, 1, 2)), 1, 2);
}

AttentionCost potentials_cost(const AttentionSizes& s, i64 iterations, bool detach, DType type) {
  const double item = double(size_of(type)), heads = double(s.B * s.H);
  const double N = double(s.N), S = double(s.S), E = double(s.E), M = double(s.M);
  const i64 R = (iterations + 1) / 2, C = iterations / 2;
  const double rows = double(R), columns = double(C), side = double(tile_side);
  const bool constant = detach || C == 0;
  const double passes = constant ? 0 : columns, terms = constant ? 1 : double(iterations);
  const double products = (passes + 3) * E + (2 + terms / E) * M;
  // Forward scratch is allocated before the gradient buffers exist.
  const double packed = (N + S) * (E + 2);
  const double few = s.N <= few::most_queries ? heads * N * (E + M + 3) : 0;
  const double forward = C == 0 ? 0
                                : heads * (N + S) * (E + 1) + few + S * (E + M + 1) -
                                      heads * (N + S) * E - heads * S * M;
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

}  // namespace weft
