// cosFormer: the definition, decoding and the fact sheet. Equations: cosformer.h.
#include "ops/attention/cosformer/cosformer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/scan/attention.h"
#include "ops/attention/scores.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace weft {
namespace {

constexpr double least = 1e-6;

ScanCall cosformer_scan(const AttentionSpec& spec) {
  return {.name = "cosformer",
          .feature = Feature::cosine,
          .least = least,
          .period = spec.integer("max_length")};
}

// Throws if positions exceed max_length: their cosines would be negative.
void check_length(const AttentionSpec& spec, i64 positions) {
  const i64 most = spec.integer("max_length");
  require(
      most == 0 || positions <= most,
      "cosformer: {} positions, and max_length is {}; it has to be as long as the sequences, or 0 "
      "for their own length",
      positions, most);
}

Attended attend_cosformer(const AttentionSpec& spec, const AttentionCall& call,
                          std::span<const Variable> inputs) {
  check_length(spec, std::max(inputs[0].size(1), inputs[1].size(1)));
  ScanCall scan = cosformer_scan(spec);
  scan.causal = call.causal;
  scan.lengths = call.lengths;
  scan.query_lengths = call.query_lengths;
  return scan_attention(scan, inputs[0], inputs[1], inputs[2]);
}

// cos(π (i − j) / 2m) if query i sees key j, otherwise 0: [B, 1, N, S].
Tensor cosines(const AttentionSpec& spec, const AttentionCall& call, i64 B, i64 N, i64 S) {
  const Tensor seen = visibility(call, B, N, S);
  std::vector<double> values = seen.to_vector<double>();
  const auto lengths = [](const Tensor& given, i64 b, i64 all) {
    return given.defined() ? std::min(given.to_vector<i64>()[b], all) : all;
  };
  for (i64 b = 0; b < B; ++b) {
    i64 m = spec.integer("max_length");
    if (m == 0) m = std::max(lengths(call.query_lengths, b, N), lengths(call.lengths, b, S));
    for (i64 i = 0; i < N; ++i) {
      for (i64 j = 0; j < S; ++j) {
        values[(b * N + i) * S + j] *=
            std::cos(std::numbers::pi * double(i - j) / (2 * double(std::max<i64>(m, 1))));
      }
    }
  }
  return Tensor::from(values, seen.shape());
}

Attended reference_cosformer(const AttentionSpec& spec, const AttentionCall& call,
                             std::span<const Variable> inputs) {
  const Variable q = relu(transpose(inputs[0], 1, 2)), k = relu(transpose(inputs[1], 1, 2));
  const DType type = q.value().dtype();
  const Tensor factors = cosines(spec, call, q.size(0), q.size(2), k.size(2)).to(type);
  const Variable a = mul(matmul(q, transpose(k, 2, 3)), factors);
  // At 10⁻⁶ itself the constant is chosen.
  const Variable divisor = maximum(Tensor::full({}, least, type), sum(a, -1));
  return transpose(div(matmul(a, transpose(inputs[2], 1, 2)), column(divisor)), 1, 2);
}

AttentionCost cost_cosformer(const AttentionSpec&, const AttentionSizes& s, bool causal,
                             DType type) {
  return scan_cost(Feature::cosine, s, causal, type);
}

// There are no positions beyond max_length.
class CosformerDecoding final : public DecodingState {
 public:
  CosformerDecoding(const AttentionSpec& spec, const AttentionSizes& sizes)
      : spec_(spec), sums_(decode_by_scan(cosformer_scan(spec), sizes)) {}

  Tensor step(std::span<const Tensor> inputs) override {
    check_length(spec_, seen_ + inputs[0].size(1));
    seen_ += inputs[0].size(1);
    return sums_->step(inputs);
  }
  i64 bytes() const override { return sums_->bytes(); }

 private:
  AttentionSpec spec_;
  std::unique_ptr<DecodingState> sums_;
  i64 seen_ = 0;
};

std::unique_ptr<DecodingState> decode_cosformer(const AttentionSpec& spec,
                                                const AttentionSizes& sizes, DType, i64) {
  require(can_decode(spec),
          "cosformer: decoding needs max_length, the largest number of positions: "
          "cosformer:max_length=2048");
  return std::make_unique<CosformerDecoding>(spec, sizes);
}

const Registration registered_cosformer{Mechanism{
    .name = "cosformer",
    .title = "linear attention whose weights fade with the cosine of the distance",
    .paper =
        "Z. Qin et al., cosFormer: rethinking softmax in attention, ICLR 2022, arXiv 2202.08791",
    .equations = "eqs. 10 to 14",
    .inputs = query_key_value,
    .options = {{.name = "max_length",
                 .initial = "0",
                 .help = "distance at which weights are 0; 0: the length of the sequence",
                 .least = 0,
                 .most = 1 << 24,
                 .tried = {"4096"}}},
    .masks = {.causal = true, .lengths = true, .query_lengths = true},
    .cross = true,
    .strictly_causal = true,
    .linear_in_values = true,
    .drops_weights = false,
    .takes_bf16 = true,
    .scaling = "N",
    .attend = attend_cosformer,
    .reference = reference_cosformer,
    .cost = cost_cosformer,
    .decode = decode_cosformer,
    .decode_wants = "max_length"}};

}  // namespace
}  // namespace weft
