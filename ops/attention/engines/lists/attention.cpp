// The op on the engine for lists. Equations: lists.h.
#include "ops/attention/engines/lists/attention.h"

#include "autograd/apply.h"
#include "ops/attention/engines/lists/lists.h"
#include "ops/attention/engines/lists/shares.h"
#include "runtime/dispatch.h"
#include "runtime/simd.h"

namespace weft {
namespace {

struct ListsOp {
  ListsCall call;
  std::shared_ptr<const EdgeListTensors> lists;
  const char* name = call.name;

  struct Saved {
    Tensor q, k, v, types, log_sums;
    std::shared_ptr<const EdgeListTensors> lists;
  };

  template <class T>
  Lists<T> problem(const Saved& saved) const {
    return {.q = saved.q.view<const T, 4>(),
            .k = saved.k.view<const T, 4>(),
            .v = saved.v.view<const T, 4>(),
            .types = saved.types.defined() ? saved.types.view<const T, 2>() : View<const T, 2>{},
            .lists = saved.lists->lists(),
            .temperature = static_cast<T>(call.temperature),
            .dropout = call.dropout,
            .random = call.random};
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v,
                 const Tensor& types) const {
    const i64 B = q.size(0), N = q.size(1), H = q.size(2);
    saved = {q, k, v, types, Tensor::empty({B, H, N}, q.dtype(), q.device()), lists};
    const Tensor out = Tensor::empty({B, N, H, v.size(3)}, q.dtype(), q.device());
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      ListsKernels<decltype(device), T>::forward(device, problem<T>(saved), out.view<T, 4>(),
                                                 saved.log_sums.template view<T, 3>());
    });
    return out;
  }

  std::array<Tensor, 4> backward(const Saved& saved, const Tensor& dout) const {
    const bool typed = saved.types.defined();
    const std::array<Tensor, 4> gradients{Tensor::empty_like(saved.q), Tensor::empty_like(saved.k),
                                          Tensor::empty_like(saved.v),
                                          typed ? Tensor::empty_like(saved.types) : Tensor()};
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      ListsKernels<decltype(device), T>::backward(
          device, problem<T>(saved), saved.log_sums.template view<const T, 3>(),
          dout.view<const T, 4>(), gradients[0].view<T, 4>(), gradients[1].view<T, 4>(),
          gradients[2].view<T, 4>(), typed ? gradients[3].view<T, 2>() : View<T, 2>{});
    });
    return gradients;
  }
};

}  // namespace

Variable lists_attention(const ListsCall& call, std::shared_ptr<const EdgeListTensors> lists,
                         const Variable& q, const Variable& k, const Variable& v,
                         const Variable& types) {
  const EdgeListSizes& s = lists->sizes;
  require(s.rows == q.size(1) && s.keys == k.size(1) && (s.items == 1 || s.items == q.size(0)) &&
              (s.heads == 1 || s.heads == q.size(2)),
          "{}: lists of {} items, {} heads, {} queries and {} keys, got q {} and k {}", call.name,
          s.items, s.heads, s.rows, s.keys, q.shape(), k.shape());
  return apply(ListsOp{call, std::move(lists)}, q, k, v, types);
}

AttentionCost lists_cost(const AttentionSizes& s, const EdgeListSizes& lists, i64 types,
                         DType type) {
  const double item = double(size_of(type)), heads = double(s.B * s.H);
  const double N = double(s.N), S = double(s.S), E = double(s.E), M = double(s.M);
  const double edges = double(lists.edges), runs = types > 0 ? double(lists.runs) : 0;
  const auto padded = [&](i64 width) {
    return double(type == DType::f32 ? simd::round_up_to_lanes<float>(width)
                                     : simd::round_up_to_lanes<double>(width));
  };
  // On the CPU of one head, and the partial gradients of the types for each share of queries and
  // each head.
  const double vectors = double(types) * padded(s.E);
  const double shares = double((s.N + list_share - 1) / list_share);
  const double packed = (N + S) * (padded(s.E) + padded(s.M)) + (1 + shares + heads) * vectors;
  const double pieces = heads * double((s.N + device_share - 1) / device_share);
  return {.forward_operations = heads * (2 * edges * (E + M) + 2 * runs * E),
          .backward_operations = heads * (edges * (6 * E + 4 * M) + 6 * runs * E),
          .exponentials = 2 * heads * edges,
          .saved_bytes = item * heads * N + lists.bytes(),
          .working_bytes = item * (packed + 2 * edges),
          .cuda_working_bytes = item * (heads * (2 * edges + runs) + pieces * double(types) * E)};
}

}  // namespace weft
