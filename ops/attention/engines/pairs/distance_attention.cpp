// The op on the passes by distance. Equations: distances.h.
#include "ops/attention/engines/pairs/distance_attention.h"

#include "autograd/apply.h"
#include "ops/attention/engines/pairs/distances.h"
#include "ops/attention/scores.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

// [H or 1, most, E] of a table.
Tensor by_head(const Tensor& table) {
  return table.rank() == 3 ? table : table.reshape({1, table.size(0), table.size(1)});
}

struct DistanceOp {
  DistanceCall call;
  const char* name = call.name;

  // q, k, v, table, bias, spans.
  struct Saved {
    std::vector<Tensor> inputs;
    Tensor out, log_sums;
  };

  template <class T>
  Distances<T> problem(const Saved& saved) const {
    const Tensor &table = saved.inputs[3], &bias = saved.inputs[4], &spans = saved.inputs[5];
    return {.q = saved.inputs[0].view<const T, 4>(),
            .k = saved.inputs[1].view<const T, 4>(),
            .v = saved.inputs[2].view<const T, 4>(),
            .table = table.defined() ? by_head(table).view<const T, 3>() : View<const T, 3>{},
            .bias = bias.defined() ? bias.view<const T, 2>() : View<const T, 2>{},
            .spans = spans.defined() ? spans.view<const T, 1>() : View<const T, 1>{},
            .lengths = numbers_of(call.lengths),
            .temperature = static_cast<T>(call.temperature),
            .nearest = call.nearest,
            .most = call.most,
            .ramp = call.ramp,
            .dropout = call.dropout,
            .random = call.random};
  }

  std::array<Tensor, 1> forward(Saved& saved, std::span<const Tensor> inputs) const {
    saved.inputs.assign(inputs.begin(), inputs.end());
    const Tensor &q = inputs[0], &v = inputs[2];
    const i64 B = q.size(0), N = q.size(1), H = q.size(2);
    saved.out = Tensor::empty({B, N, H, v.size(3)}, q.dtype(), q.device());
    saved.log_sums = Tensor::empty({B, H, N}, q.dtype(), q.device());
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      DistancesKernels<decltype(device), T>::forward(
          device, problem<T>(saved), saved.out.view<T, 4>(), saved.log_sums.view<T, 3>());
    });
    return {saved.out};
  }

  std::vector<Tensor> backward(const Saved& saved, Wants wants, const Tensor& dout) const {
    std::vector<Tensor> gradients;
    for (std::size_t input = 0; input < saved.inputs.size(); ++input) {
      const bool asked = input < 3 || (saved.inputs[input].defined() && wants[input]);
      gradients.push_back(asked ? Tensor::empty_like(saved.inputs[input]) : Tensor());
    }
    const Tensor &table = gradients[3], &bias = gradients[4], &spans = gradients[5];
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      DistancesBackwardKernels<decltype(device), T>::backward(
          device, problem<T>(saved), saved.out.view<const T, 4>(),
          saved.log_sums.view<const T, 3>(), dout.view<const T, 4>(), gradients[0].view<T, 4>(),
          gradients[1].view<T, 4>(), gradients[2].view<T, 4>(),
          table.defined() ? by_head(table).view<T, 3>() : View<T, 3>{},
          bias.defined() ? bias.view<T, 2>() : View<T, 2>{},
          spans.defined() ? spans.view<T, 1>() : View<T, 1>{});
    });
    return gradients;
  }
};

}  // namespace

Variable distance_attention(const DistanceCall& call, const Variable& q, const Variable& k,
                            const Variable& v, const ByDistance& by) {
  require(by.table.defined() || !by.bias.defined(), "{}: a bias by distance needs a table",
          call.name);
  const Variable inputs[] = {q, k, v, by.table, by.bias, by.spans};
  return apply_list(DistanceOp{call}, inputs)[0];
}

}  // namespace weft
