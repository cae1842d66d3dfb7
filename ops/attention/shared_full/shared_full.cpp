// Shared-QK attention: op, definition, decoding and fact sheet. Equations: shared_full.h.
#include "ops/attention/shared_full/shared_full.h"

#include "autograd/apply.h"
#include "ops/attention/definitions.h"
#include "ops/attention/engines/pairs/pairs.h"
#include "ops/attention/key_value_cache.h"
#include "ops/attention/scores.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

struct SharedFullOp {
  static constexpr const char* name = "shared-full";
  AttentionCall call;
  double temperature = 1;
  bool normalize = false;

  struct Saved {
    Tensor q, v, out, log_sums;
  };

  Tensor keys(const Tensor& q) const {
    if (!normalize) return q;
    const Tensor k = Tensor::empty_like(q);
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      SharedFullKernels<decltype(device), T>::normalize_rows(device, q.view<const T, 4>(),
                                                             k.view<T, 4>());
    });
    return k;
  }

  template <class T>
  Pairs<T> problem(const Saved& saved, const Tensor& k) const {
    const i64* const lengths = numbers_of(call.lengths);
    return {.q = saved.q.view<const T, 4>(),
            .k = k.view<const T, 4>(),
            .v = saved.v.view<const T, 4>(),
            .bias = {},
            .lengths = lengths,
            .query_lengths = lengths,
            .temperature = static_cast<T>(temperature),
            .band = call.causal ? Band::causal() : Band::all(),
            .dropout = call.dropout,
            .random = call.random,
            .columns = k.size(1)};
  }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& v) const {
    const i64 B = q.size(0), N = q.size(1), H = q.size(2);
    saved = {q, v, Tensor::empty(v.shape(), q.dtype(), q.device()),
             Tensor::empty({B, H, N}, q.dtype(), q.device())};
    const Tensor k = keys(q);
    dispatch(q, [&](auto device, auto type) {
      using T = decltype(type);
      PairsKernels<decltype(device), T>::forward(device, problem<T>(saved, k), {},
                                                 saved.out.view<T, 4>(),
                                                 saved.log_sums.view<T, 3>());
    });
    return saved.out;
  }

  std::array<Tensor, 2> backward(const Saved& saved, const Tensor& dout) const {
    const Tensor k = keys(saved.q);
    const Tensor dq = Tensor::empty_like(saved.q), dk = Tensor::empty_like(saved.q);
    const Tensor dv = Tensor::empty_like(saved.v);
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      PairsBackwardKernels<decltype(device), T>::backward(
          device, problem<T>(saved, k), saved.out.view<const T, 4>(),
          saved.log_sums.view<const T, 3>(), dout.view<const T, 4>(), {}, dq.view<T, 4>(),
          dk.view<T, 4>(), dv.view<T, 4>(), {});
      SharedFullKernels<decltype(device), T>::keys_backward(
          device, normalize, saved.q.view<const T, 4>(), dk.view<const T, 4>(), dq.view<T, 4>());
    });
    return {dq, dv};
  }
};

AttentionSpec full_spec(const AttentionSpec& spec) {
  return AttentionSpec("full:temperature=" + spec.word("temperature"));
}

bool normalizes(const AttentionSpec& spec) { return spec.integer("normalize_keys") != 0; }

Attended attend_shared_full(const AttentionSpec& spec, const AttentionCall& call,
                            std::span<const Variable> inputs) {
  const SharedFullOp op{call, temperature_of(spec, inputs[0].size(3)), normalizes(spec)};
  return apply(op, inputs[0], inputs[1]);
}

// The definition: that of `full`, with these keys.
Attended reference_shared_full(const AttentionSpec& spec, const AttentionCall& call,
                               std::span<const Variable> inputs) {
  const Variable& q = inputs[0];
  AttentionCall both = call;
  both.query_lengths = call.lengths;
  const std::array<Variable, 3> list{q, normalizes(spec) ? unit_rows(q) : q, inputs[1]};
  const AttentionSpec full = full_spec(spec);
  return full.mechanism().reference(full, both, list);
}

AttentionCost cost_shared_full(const AttentionSpec& spec, const AttentionSizes& sizes, bool causal,
                               DType type) {
  const AttentionSpec full("full");
  AttentionCost cost = full.mechanism().cost(full, sizes, causal, type);
  const double row = double(sizes.B * sizes.N * sizes.H * sizes.E) * double(size_of(type));
  cost.working_bytes += (normalizes(spec) ? 2 : 1) * row;
  cost.cuda_working_bytes += (normalizes(spec) ? 2 : 1) * row;
  return cost;
}

// Keeps keys and values; a position's key is computed from its query.
class SharedCache final : public DecodingState {
 public:
  SharedCache(const AttentionSpec& spec, const AttentionSizes& sizes, DType type, i64 capacity)
      : cache_(full_spec(spec), sizes, type, capacity) {
    op_.normalize = normalizes(spec);
  }

  Tensor step(std::span<const Tensor> inputs) override {
    const Tensor list[] = {inputs[0], op_.keys(inputs[0]), inputs[1]};
    return cache_.step(list);
  }

  i64 bytes() const override { return cache_.bytes(); }

 private:
  SharedFullOp op_;
  KeyValueCache cache_;
};

std::unique_ptr<DecodingState> decode_shared_full(const AttentionSpec& spec,
                                                  const AttentionSizes& sizes, DType type,
                                                  i64 capacity) {
  return std::make_unique<SharedCache>(spec, sizes, type, capacity);
}

const Registration registered_shared_full{Mechanism{
    .name = "shared-full",
    .title = "softmax attention whose keys are the queries",
    .paper = "A. Vyas, A. Katharopoulos, F. Fleuret, Fast transformers with clustered attention, "
             "NeurIPS 2020, arXiv 2007.04825",
    .equations = "section 4.1; keys of length 1: Kitaev et al., Reformer, arXiv 2001.04451, "
                 "section 2",
    .inputs = [](const AttentionSpec&, const AttentionSizes&) -> AttentionInputs {
      return {{.name = "q", .axes = "B N H E", .matrix = "qv"},
              {.name = "v", .side = Side::reference, .axes = "B S H M", .matrix = "qv"}};
    },
    .options = {temperature_option(),
                {.name = "normalize_keys",
                 .initial = "0",
                 .help = "1: keys have length 1, as in Reformer",
                 .choices = {"0", "1"}}},
    .masks = {.causal = true, .lengths = true},
    .strictly_causal = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .scaling = "N S",
    .attend = attend_shared_full,
    .reference = reference_shared_full,
    .cost = cost_shared_full,
    .decode = decode_shared_full}};

}  // namespace
}  // namespace weft
