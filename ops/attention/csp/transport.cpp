// CSP at a finite temperature: groups as batch items of the passes with potentials. Equations:
// transport.h.
#include "ops/attention/csp/transport.h"

#include <array>

#include "ops/cast/cast.h"
#include "ops/cumulative_sum/cumulative_sum.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"

namespace weft {
namespace {

bool is_sharp(const CspTransport& transport) { return transport.temperature < 0.1; }

// The number of samples of each of n groups, [B n] i64, on the device of the lengths, without
// waiting; undefined if all have `group`.
Tensor lengths_of_groups(const Tensor& lengths, const Tensor& u, i64 n, i64 group) {
  const i64 B = u.size(0), N = u.size(1);
  if (!lengths.defined() && N == n * group) return {};
  const auto filled = [&](const Shape& shape, i64 x) {
    return Tensor::full(shape, double(x), DType::f64, u.device());
  };
  const Tensor whole =
      lengths.defined() ? lengths.to(DType::f64).reshape({B, 1}) : filled({B, 1}, N);
  const Tensor size = filled({1, n}, group);
  const Variable behind = relu(sub(whole, sub(cumulative_sum(size, 1), size)));
  const Variable counts = sub(size, relu(sub(size, behind)));  // the lesser of the two
  return counts.value().to(DType::i64).reshape({B * n});
}

}  // namespace

Variable csp_transport(const CspTransport& transport, const Variable& given, i64 group,
                       const Tensor& lengths, PotentialsFunction attention) {
  const DType type = given.value().dtype();
  const Variable u = is_sharp(transport) ? cast(given, DType::f64) : given;
  const i64 B = u.size(0), N = u.size(1), C = u.size(2);
  const i64 n = (N + group - 1) / group, missing = n * group - N;
  Variable whole = u;
  if (missing > 0) {
    const Tensor zeros = Tensor::zeros({B, missing, C}, u.value().dtype(), u.value().device());
    whole = concatenate(std::array{u, Variable(zeros)}, 1);
  }
  const Variable samples = reshape(whole, {B * n, group, C, 1});
  const Variable reference = expand(slice(samples, 2, 0, 1), {B * n, group, C, 1});
  const Tensor counts = lengths_of_groups(lengths, u.value(), n, group);
  const PotentialsCall call{.name = "csp",
                            .temperature = 1 / transport.temperature,
                            .iterations = 2 * transport.steps,
                            .lengths = counts,
                            .query_lengths = counts};
  const Variable out = attention(call, reference, samples, samples);
  const Variable inside = cast(slice(reshape(out, {B, n * group, C}), 1, 0, N), type);
  // A copy, without the padding of the last group.
  return missing > 0 ? concatenate(std::array{inside}, 1) : inside;
}

AttentionCost csp_transport_cost(const CspTransport& transport, i64 B, i64 N, i64 C, i64 group,
                                 DType type) {
  if (is_sharp(transport)) type = DType::f64;
  const i64 n = (N + group - 1) / group;
  const AttentionSizes sizes{.B = B * n, .N = group, .S = group, .H = C, .E = 1, .M = 1};
  AttentionCost cost = potentials_cost(sizes, 2 * transport.steps, false, type);
  const double samples = double(size_of(type)) * double(B * n * group * C);
  // u, and the engine's output if the padding of the last group is removed from it.
  cost.saved_bytes += n * group > N ? 2 * samples : samples;
  // The gradients of queries, keys and values are separate from the input's.
  cost.working_bytes += 3 * samples;
  cost.cuda_working_bytes += 3 * samples;
  return cost;
}

}  // namespace weft
