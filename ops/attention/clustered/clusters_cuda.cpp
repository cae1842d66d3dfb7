// The clustering of queries on CUDA devices: what the host allocates and starts for it.
#include "ops/attention/clustered/clusters.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

// All that is drawn for a call, or handed in instead.
struct DeviceDraws {
  Tensor planes;     // [bits, E + 1], of q's type
  Tensor positions;  // [B + 1, C] i64; the last row is that of the longest item
  Tensor given;      // positions that were handed in

  DeviceDraws(const Cuda& device, const AttentionSpec& spec, const AttentionCall& call,
              const Tensor& lengths, const Tensor& q) {
    const Mechanism& mechanism = spec.mechanism();
    const std::int64_t B = q.size(0), E = q.size(3);
    const std::int64_t C = spec.integer("clusters"), bits = spec.integer("bits");
    planes = given_choice(mechanism, call, "planes", {bits, E + 1}, q.dtype());
    const bool drawn = !planes.defined();
    if (drawn) {
      planes = Tensor::empty({bits, E + 1}, q.dtype(), q.device());
      dispatch(q, [&](auto, auto type) {
        using T = decltype(type);
        draw_planes<T>(device, call.random, bits, E, planes.data<T>());
      });
    }
    if (spec.integer("hash_bias") == 0) {
      if (!drawn) planes = planes.clone();
      planes.slice(1, E, E + 1).fill(0);
    }
    given = given_choice(mechanism, call, "positions", {C});
    positions = Tensor::empty({B + 1, C}, DType::i64, q.device());
    draw_positions(device,
                   {call.random, given.defined() ? given.data<std::int64_t>() : nullptr,
                    numbers_of(lengths), B, q.size(1), C},
                   positions.data<std::int64_t>());
  }

  Tensor longest() const {
    if (given.defined()) return given;
    const std::int64_t B = positions.size(0) - 1;
    return positions.slice(0, B, B + 1).reshape({positions.size(1)}).clone();
  }
};

}  // namespace

Tensor decide_labels(const Cuda& device, const AttentionSpec& spec, const AttentionCall& call,
                     const Tensor& lengths, const Tensor& q) {
  const std::int64_t B = q.size(0), N = q.size(1), H = q.size(2), C = spec.integer("clusters");
  const Shape shape{B, H, N};
  const Tensor given = given_choice(spec.mechanism(), call, "labels", shape);
  const Tensor labels = Tensor::empty(shape, DType::i32, q.device());
  if (given.defined()) {
    take_labels(device, {given.data<std::int64_t>(), numbers_of(lengths), B, H, N, C},
                labels.data<std::int32_t>());
    if (call.chosen == nullptr) return labels;
  }
  const DeviceDraws draws(device, spec, call, lengths, q);
  const Tensor hashes = Tensor::empty(shape, DType::i64, q.device());
  dispatch(q, [&](auto, auto type) {
    using T = decltype(type);
    cluster_queries<T>(
        device,
        {q.view<const T, 4>(), draws.planes.view<const T, 2>(),
         draws.positions.data<std::int64_t>(), numbers_of(lengths), C, spec.integer("iterations")},
        given.defined() ? View<std::int32_t, 3>{} : labels.view<std::int32_t, 3>(),
        hashes.view<std::int64_t, 3>());
  });
  if (call.chosen != nullptr) {
    report_choice(call, "planes", draws.planes);
    report_choice(call, "positions", draws.longest());
    report_choice(call, "labels", labels.to(DType::i64));
    report_choice(call, "hashes", hashes);
  }
  return labels;
}

}  // namespace weft
