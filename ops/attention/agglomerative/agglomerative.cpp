// Agglomerative attention: the op, its definition, decoding and the fact sheet. Equations:
// agglomerative.h.
#include "ops/attention/agglomerative/agglomerative.h"

#include <algorithm>

#include "autograd/apply.h"
#include "ops/attention/scores.h"
#include "ops/dropout/dropout.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

// x itself where neighbours along its last axis are neighbours in memory, otherwise a copy.
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
    const std::int64_t B = zq.size(0), N = zq.size(1), H = zq.size(2), M = y.size(3);
    saved = {dense(zq), dense(zk), dense(y),
             Tensor::empty({B, agglomerative_rows(call.causal, N), H * (1 + M)}, DType::f64,
                           zq.device())};
    const Tensor out = Tensor::empty({B, N, H, M}, zq.dtype(), zq.device());
    dispatch(zq, [&](auto device, auto type) {
      using T = decltype(type);
      agglomerative_forward<T>(device, problem<T>(saved), saved.sums.view<double, 3>(),
                               out.view<T, 4>());
    });
    return out;
  }

  std::array<Tensor, 3> backward(const Saved& saved, const Tensor& dout) const {
    const std::array<Tensor, 3> gradients = places(saved);
    const Tensor rows = call.dropout > 0 ? dout.packed() : dense(dout);
    dispatch(dout, [&](auto device, auto type) {
      using T = decltype(type);
      agglomerative_backward<T>(device, problem<T>(saved), saved.sums.view<const double, 3>(),
                                rows.view<const T, 4>(), gradients[0].view<T, 3>(),
                                gradients[1].view<T, 3>(), gradients[2].view<T, 4>());
    });
    return gradients;
  }

  // Room for dzq, dzk and dy. Over one sequence they lie side by side, as the inputs do in the
  // projection that they are columns of: its gradient is then there without a copy.
  static std::array<Tensor, 3> places(const Saved& saved) {
    const Tensor &zq = saved.zq, &zk = saved.zk, &y = saved.y;
    const std::int64_t B = zq.size(0), N = zq.size(1), H = zq.size(2), M = y.size(3);
    if (zk.size(1) == N) {
      const Tensor all = Tensor::empty({B, N, H * (2 + M)}, zq.dtype(), zq.device());
      return {all.slice(2, 0, H), all.slice(2, H, 2 * H),
              all.slice(2, 2 * H, H * (2 + M)).reshape(y.shape())};
    }
    return {Tensor::empty_like(zq), Tensor::empty_like(zk), Tensor::empty_like(y)};
  }
};

Variable attend_agglomerative(const AttentionSpec&, const AttentionCall& call,
                              std::span<const Variable> inputs) {
  return apply(AgglomerativeOp{call}, inputs[0], inputs[1], inputs[2]);
}

// 1 before each length, 0 from there on: [B, positions, 1] in `type`.
Variable existence(const Tensor& lengths, std::int64_t B, std::int64_t positions, DType type) {
  const Tensor mask = Tensor::full({B, positions, 1}, 1, type);
  for (std::int64_t b = 0; lengths.defined() && b < B; ++b) {
    const std::int64_t length = lengths.to_vector<std::int64_t>()[static_cast<std::size_t>(b)];
    mask.slice(0, b, b + 1).slice(1, length, positions).fill(0);
  }
  return mask;
}

// The definition: the sums over references are products with a matrix of zeros and ones [N, S].
Variable reference_agglomerative(const AttentionSpec&, const AttentionCall& call,
                                 std::span<const Variable> inputs) {
  const Variable &zq = inputs[0], &zk = inputs[1], &y = inputs[2];
  const std::int64_t B = zq.size(0), N = zq.size(1), S = zk.size(1), H = zq.size(2), M = y.size(3);
  const DType type = zq.value().dtype();
  const Tensor seen = Tensor::zeros({N, S}, type);
  for (std::int64_t i = 0; i < N; ++i) {
    seen.slice(0, i, i + 1).slice(1, 0, call.causal ? i + 1 : S).fill(1);
  }
  const Variable gather = expand(seen, {B, N, S});
  const Variable cq = mul(softmax(zq), existence(call.query_lengths, B, N, type));
  const Variable ck = mul(softmax(zk), existence(call.lengths, B, S, type));
  const Variable mass = matmul(gather, ck);  // [B, N, H]
  const Variable weighted = reshape(mul(reshape(ck, {B, S, H, 1}), y), {B, S, H * M});
  const Variable sums = reshape(matmul(gather, weighted), {B, N, H, M});
  const auto constant = [&](double value) { return Variable(Tensor::full({}, value, type)); };
  const Variable excess = relu(add(mass, constant(-least_class_mass)));
  const Variable n = add(excess, constant(least_class_mass));
  const Variable share = mul(cq, exp(scale(log(n), -1)));  // cq / n
  const Variable p = reshape(mul(reshape(share, {B, N, H, 1}), sums), {B, N, H * M});
  return reshape(call.dropout > 0 ? dropout(p, call.dropout, call.random) : p, {B, N, H, M});
}

AttentionCost cost_agglomerative(const AttentionSpec&, const AttentionSizes& s, bool causal,
                                 DType) {
  const auto B = double(s.B), M = double(s.M), width = double(s.H * (1 + s.M));
  const auto positions = double(s.B * (s.N + s.S) * s.H);
  const std::int64_t length = std::max(s.N, s.S);
  const auto count = double(std::min(length, agglomerative_chunk) * s.H);
  const auto chunks = double(s.B * agglomerative_chunks(length));
  const double pieces = std::min(chunks, double(agglomerative_wave));
  // What a wave of chunks or all of them share, and one piece of work besides.
  const double shared = causal ? (pieces + 2) * width + pieces * 3 * count : (chunks + B) * width;
  const double piece = width + (causal ? 3 : 6) * count;
  // On a CUDA device: the sums of the references' chunks in forward, of the queries' in backward.
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

// The sums over the positions so far, in f64 whatever the inputs are, on the inputs' device.
class AgglomerativeDecoding final : public DecodingState {
 public:
  explicit AgglomerativeDecoding(const AttentionSizes& s) : shape_{s.B, s.H * (1 + s.M)} {}

  Tensor step(std::span<const Tensor> inputs) override {
    if (!sums_.defined()) sums_ = Tensor::zeros(shape_, DType::f64, inputs[0].device());
    AgglomerativeOp op;
    op.call.causal = true;
    const AgglomerativeOp::Saved saved{dense(inputs[0]), dense(inputs[1]), dense(inputs[2]), {}};
    const Tensor out = Tensor::empty_like(inputs[2]);
    dispatch(out, [&](auto device, auto type) {
      using T = decltype(type);
      agglomerative_advance<T>(device, op.problem<T>(saved), sums_.view<double, 2>(),
                               out.view<T, 4>());
    });
    return out;
  }

  std::int64_t bytes() const override { return shape_.count() * std::int64_t(sizeof(double)); }

 private:
  Shape shape_;  // [B, H (1 + M)]
  Tensor sums_;  // from the first step on
};

std::unique_ptr<DecodingState> decode_agglomerative(const AttentionSpec&,
                                                    const AttentionSizes& sizes, DType,
                                                    std::int64_t) {
  return std::make_unique<AgglomerativeDecoding>(sizes);
}

constexpr Initializer glorot{Initializer::glorot_uniform};
constexpr Initializer small{Initializer::normal, 0.05};

const Registration registered{Mechanism{
    .name = "agglomerative",
    .title = "means of soft classes over the past, read by each position's own classes",
    .paper = "M. Spellings, Agglomerative attention, 2019, arXiv 1907.06607",
    .equations = "Methods",
    .inputs = {{.name = "zq", .shape = "B N H", .weight = glorot, .biased = true, .bias = small},
               {.name = "zk",
                .side = Side::reference,
                .shape = "B S H",
                .weight = glorot,
                .biased = true,
                .bias = small},
               {.name = "y", .side = Side::reference, .shape = "B S H M", .weight = glorot}},
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
