// Agglomerative attention: the op, its definition, decoding and the fact sheet. Equations:
// agglomerative.h.
#include "ops/attention/agglomerative/agglomerative.h"

#include <algorithm>

#include "autograd/apply.h"
#include "ops/attention/definitions.h"
#include "ops/attention/scores.h"
#include "ops/cumulative_sum/cumulative_sum.h"
#include "ops/dropout/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

// x itself if its last axis is contiguous, otherwise a copy.
Tensor dense(const Tensor& x) { return x.size(-1) == 1 || x.stride(-1) == 1 ? x : x.clone(); }

struct AgglomerativeOp {
  static constexpr const char* name = "agglomerative";
  AttentionCall call;

  struct Saved {
    Tensor zq, zk, y;
    Tensor sums;  // [B, rows, H (1 + M)] f64
  };

  template <class T>
  Agglomerative<T> problem(const Saved& saved) const {
    return {saved.zq.view<const T, 3>(),
            saved.zk.view<const T, 3>(),
            saved.y.view<const T, 4>(),
            numbers_of(call.lengths),
            numbers_of(call.query_lengths),
            call.causal,
            call.dropout,
            call.random};
  }

  Tensor forward(Saved& saved, const Tensor& zq, const Tensor& zk, const Tensor& y) const {
    const i64 B = zq.size(0), N = zq.size(1), H = zq.size(2), M = y.size(3);
    saved = {dense(zq), dense(zk), dense(y),
             Tensor::empty({B, agglomerative_rows(call.causal, N), H * (1 + M)}, DType::f64,
                           zq.device())};
    const Tensor out = Tensor::empty({B, N, H, M}, zq.dtype(), zq.device());
    dispatch(zq, [&](auto device, auto type) {
      using T = decltype(type);
      AgglomerativeKernels<decltype(device), T>::forward(
          device, problem<T>(saved), saved.sums.view<double, 3>(), out.view<T, 4>());
    });
    return out;
  }

  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dout) const {
    const std::array<Tensor, 3> gradients = places(saved);
    const Tensor rows = call.dropout > 0 ? dout.packed() : dense(dout);
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      AgglomerativeKernels<decltype(device), T>::backward(
          device, problem<T>(saved), saved.sums.view<const double, 3>(), rows.view<const T, 4>(),
          gradients[0].view<T, 3>(), gradients[1].view<T, 3>(), gradients[2].view<T, 4>());
    });
    return gradients;
  }

  // Memory for dzq, dzk and dy. Over one sequence they are adjacent columns, like the inputs in the
  // projection that they are columns of: the gradient of the projection then needs no copy.
  static std::array<Tensor, 3> places(const Saved& saved) {
    const Tensor &zq = saved.zq, &zk = saved.zk, &y = saved.y;
    const i64 B = zq.size(0), N = zq.size(1), H = zq.size(2), M = y.size(3);
    if (zk.size(1) == N) {
      const Tensor all = Tensor::empty({B, N, H * (2 + M)}, zq.dtype(), zq.device());
      return {all.slice(2, 0, H), all.slice(2, H, 2 * H),
              all.slice(2, 2 * H, H * (2 + M)).reshape(y.shape())};
    }
    return {Tensor::empty_like(zq), Tensor::empty_like(zk), Tensor::empty_like(y)};
  }
};

Attended attend_agglomerative(const AttentionSpec&, const AttentionCall& call,
                              std::span<const Variable> inputs) {
  return apply(AgglomerativeOp{call}, inputs[0], inputs[1], inputs[2]);
}

// The definition.
Attended reference_agglomerative(const AttentionSpec&, const AttentionCall& call,
                                 std::span<const Variable> inputs) {
  const Variable &zq = inputs[0], &zk = inputs[1], &y = inputs[2];
  const i64 B = zq.size(0), N = zq.size(1), S = zk.size(1), H = zq.size(2), M = y.size(3);
  const DType type = zq.value().dtype();
  const Variable cq = mul(softmax(zq), existence(call.query_lengths, B, N, type));
  const Variable ck = mul(softmax(zk), existence(call.lengths, B, S, type));
  // Sums over the references that a query sees: [B, N, …], or [B, 1, …] if all see the same.
  const auto summed = [&](const Variable& x) {
    if (call.causal) return cumulative_sum(x, 1);
    Shape once = x.shape();
    once[1] = 1;
    return reshape(sum(x, 1), once);
  };
  const Variable mass = summed(ck), weighted = summed(mul(column(ck), y));  // S, U
  const Variable n = maximum(mass, Tensor::full({}, least_class_mass, type));
  const Variable a = div(weighted, column(n));
  const Variable p = reshape(mul(column(cq), a), {B, N, H * M});
  return reshape(dropout(p, call.dropout, call.random), {B, N, H, M});
}

AttentionCost cost_agglomerative(const AttentionSpec&, const AttentionSizes& s, bool causal,
                                 DType) {
  const auto B = double(s.B), M = double(s.M), width = double(s.H * (1 + s.M));
  const auto positions = double(s.B * (s.N + s.S) * s.H);
  const i64 length = std::max(s.N, s.S);
  const auto count = double(std::min(length, agglomerative_chunk) * s.H);
  const auto chunks = double(s.B * agglomerative_chunks(length));
  const double pieces = std::min(chunks, double(agglomerative_wave));
  // Scratch shared by a wave of chunks or by all of them, and that of one task.
  const double shared = causal ? (pieces + 2) * width + pieces * 3 * count : (chunks + B) * width;
  const double piece = width + (causal ? 3 : 6) * count;
  // On a CUDA device: the sums of the references' chunks in forward, of the queries' chunks in
  // backward.
  const double chunk_rows =
      double(causal ? agglomerative_chunks(s.N)
                    : std::max(agglomerative_chunks(s.S), agglomerative_chunks(s.N) + 1));
  return {.forward_operations = positions * (M + 5),
          .backward_operations = positions * (4 * M + 8),
          .exponentials = 2 * positions,
          .saved_bytes = 8 * B * double(agglomerative_rows(causal, s.N)) * width,
          .working_bytes = 8 * (shared + piece),
          .cuda_working_bytes = 8 * double(s.B) * chunk_rows * width};
}

// The sums over the positions so far, in f64 for inputs of any type, on the inputs' device.
class AgglomerativeDecoding final : public DecodingState {
 public:
  explicit AgglomerativeDecoding(const AttentionSizes& s) : shape_{s.B, s.H * (1 + s.M)} {}

  Tensor step(std::span<const Tensor> inputs) override {
    if (!sums_.defined()) sums_ = Tensor::zeros(shape_, DType::f64, inputs[0].device());
    const Tensor out = Tensor::empty_like(inputs[2]);
    for (i64 i = 0; i < out.size(1); ++i) {
      const auto position = [&](const Tensor& x) { return dense(x.slice(1, i, i + 1)); };
      advance({position(inputs[0]), position(inputs[1]), position(inputs[2]), {}}, position(out));
    }
    return out;
  }

  i64 bytes() const override { return shape_.count() * i64(sizeof(double)); }

 private:
  void advance(const AgglomerativeOp::Saved& saved, const Tensor& out) const {
    AgglomerativeOp op;
    op.call.causal = true;
    dispatch(out, [&](auto device, auto type) {
      using T = decltype(type);
      AgglomerativeKernels<decltype(device), T>::advance(device, op.problem<T>(saved),
                                                         sums_.view<double, 2>(), out.view<T, 4>());
    });
  }

  Shape shape_;  // [B, H (1 + M)]
  Tensor sums_;  // from the first step on
};

std::unique_ptr<DecodingState> decode_agglomerative(const AttentionSpec&,
                                                    const AttentionSizes& sizes, DType, i64) {
  return std::make_unique<AgglomerativeDecoding>(sizes);
}

constexpr Initializer glorot{Initializer::glorot_uniform};
constexpr Initializer small{Initializer::normal, 0.05};

const Registration registered_agglomerative{Mechanism{
    .name = "agglomerative",
    .title = "means of soft classes over the past, read by each position's own classes",
    .paper = "M. Spellings, Agglomerative attention, 2019, arXiv 1907.06607",
    .equations = "Methods",
    .inputs = [](const AttentionSpec&, const AttentionSizes&) -> AttentionInputs {
      return {{.name = "zq", .axes = "B N H", .weight = glorot, .biased = true, .bias = small},
              {.name = "zk",
               .side = Side::reference,
               .axes = "B S H",
               .weight = glorot,
               .biased = true,
               .bias = small},
              {.name = "y", .side = Side::reference, .axes = "B S H M", .weight = glorot}};
    },
    .options = {},
    .masks = {.causal = true, .lengths = true, .query_lengths = true},
    .cross = true,
    .strictly_causal = true,
    .unordered_keys = true,
    .joined = true,
    .linear_in_values = true,
    .row_sums = RowSums::one_over_heads,
    .scaling = "N",
    .attend = attend_agglomerative,
    .reference = reference_agglomerative,
    .cost = cost_agglomerative,
    .decode = decode_agglomerative}};

}  // namespace
}  // namespace weft
