// Full attention: the op, its definition, decoding and the fact sheet. Equations: full.h.
#include "ops/attention/full/full.h"

#include "autograd/apply.h"
#include "ops/attention/definitions.h"
#include "ops/attention/full/narrow.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"
#include "runtime/matmul.h"

namespace weft {
namespace {

struct FullAttentionOp {
  static constexpr const char* name = "full";
  AttentionCall call;
  double temperature = 1;

  struct Saved {
    Tensor q, k, v, bias, out, log_sums;
  };

  // A bias [B|1, H|1, N, S] seen as [B, H, N, S].
  static Tensor expanded(const Tensor& bias, const Tensor& q, const Tensor& k) {
    if (!bias.defined()) return bias;
    return bias.expand({q.size(0), q.size(2), q.size(1), k.size(1)});
  }

  template <class T>
  FullAttention<T> problem(const Saved& saved) const {
    const Tensor bias = expanded(saved.bias, saved.q, saved.k);
    return {saved.q.view<const T, 4>(),
            saved.k.view<const T, 4>(),
            saved.v.view<const T, 4>(),
            bias.defined() ? bias.view<const T, 4>() : View<const T, 4>{},
            numbers_of(call.lengths),
            numbers_of(call.query_lengths),
            static_cast<T>(temperature),
            call.causal,
            call.dropout,
            call.random};
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v,
                 const Tensor& bias) const {
    const std::int64_t B = q.size(0), N = q.size(1), H = q.size(2), M = v.size(3);
    saved = {q, k, v, bias, Tensor::empty({B, N, H, M}, q.dtype(), q.device()),
             Tensor::empty({B, H, N}, q.dtype(), q.device())};
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      FullKernels<decltype(device), T>::forward(device, problem<T>(saved), saved.out.view<T, 4>(),
                                                saved.log_sums.view<T, 3>());
    });
    return saved.out;
  }

  std::array<Tensor, 4> backward(const Saved& saved, Wants wants, const Tensor& dout) const {
    const Tensor dq = Tensor::empty_like(saved.q), dk = Tensor::empty_like(saved.k);
    const Tensor dv = Tensor::empty_like(saved.v);
    const bool biased = saved.bias.defined() && wants[3];
    const Tensor dbias =
        biased ? Tensor::empty_like(expanded(saved.bias, saved.q, saved.k)) : Tensor{};
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      FullBackwardKernels<decltype(device), T>::backward(
          device, problem<T>(saved), saved.out.view<const T, 4>(),
          saved.log_sums.view<const T, 3>(), dout.view<const T, 4>(), dq.view<T, 4>(),
          dk.view<T, 4>(), dv.view<T, 4>(), biased ? dbias.view<T, 4>() : View<T, 4>{});
    });
    return {dq, dk, dv, biased ? sum_to(dbias, saved.bias.shape()) : dbias};
  }
};

Attended attend_full(const AttentionSpec& spec, const AttentionCall& call,
                     std::span<const Variable> inputs) {
  const FullAttentionOp op{call, temperature_of(spec, inputs[0].size(3))};
  return apply(op, inputs[0], inputs[1], inputs[2], inputs.size() > 3 ? inputs[3] : Variable{});
}

// The definition: N × S matrices, plain ops.
Attended reference_full(const AttentionSpec& spec, const AttentionCall& call,
                        std::span<const Variable> inputs) {
  const Variable q = transpose(inputs[0], 1, 2);  // [B, H, N, E]
  const Variable k = transpose(inputs[1], 1, 2);  // [B, H, S, E]
  const Variable v = transpose(inputs[2], 1, 2);  // [B, H, S, M]
  Variable z = scale(matmul(q, transpose(k, 2, 3)), temperature_of(spec, q.size(3)));
  if (inputs.size() > 3 && inputs[3].defined()) z = add(z, inputs[3]);
  const Variable a = softmax(masked(z, visibility(call, q.size(0), q.size(2), k.size(2))));
  return transpose(matmul(dropout(a, call.dropout, call.random), v), 1, 2);
}

AttentionCost cost_full(const AttentionSpec&, const AttentionSizes& s, bool causal, DType type) {
  const double pairs = double(s.B * s.H * s.N) * double(s.S) / (causal ? 2 : 1);
  const double item = double(size_of(type));
  const bool is_narrow = type == DType::f32 && narrow::possible<float>(s.E, s.M);
  const std::int64_t keys = is_narrow ? narrow::most_keys : 64;
  return {.forward_operations = 2 * pairs * double(s.E + s.M),
          .backward_operations = pairs * double(6 * s.E + 4 * s.M),
          .exponentials = 2 * pairs,
          .saved_bytes = double(s.B * s.H * s.N) * item,
          .working_bytes =
              item * double((3 * s.E + 2 * s.M + 2) * (s.N + 64) + keys * 2 * (s.E + s.M + 64)),
          .cuda_working_bytes = double(s.B * s.H * s.N) * item};
}

const Registration registered{Mechanism{
    .name = "full",
    .title = "softmax attention over all keys",
    .paper = "A. Vaswani et al., Attention is all you need, NeurIPS 2017, arXiv 1706.03762",
    .equations = "eq. 1",
    .inputs = [](const AttentionSpec& spec, const AttentionSizes& sizes) {
      AttentionInputs inputs = query_key_value(spec, sizes);
      inputs.push_back({.name = "bias", .role = Role::bias, .axes = "b h N S", .optional = true});
      return inputs;
    },
    .options = {temperature_option()},
    .masks = {.causal = true, .lengths = true, .query_lengths = true, .bias = true},
    .cross = true,
    .strictly_causal = true,
    .unordered_keys = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .scaling = "N S",
    .attend = attend_full,
    .reference = reference_full,
    .cost = cost_full,
    .decode = decode_by_cache}};

}  // namespace
}  // namespace weft
