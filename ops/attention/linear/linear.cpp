// Linear attention: the definition, decoding and the fact sheet. Equations: linear.h.
#include "ops/attention/linear/linear.h"

#include <algorithm>
#include <vector>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/scan/attention.h"
#include "ops/attention/scores.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace weft {
namespace {

constexpr double added = 1e-6;

Feature linear_feature(const AttentionSpec& spec) {
  const std::string word = spec.word("feature");
  return word == "elu" ? Feature::elu : word == "relu" ? Feature::relu : Feature::exponential;
}

ScanCall linear_scan(const AttentionSpec& spec) {
  return {.name = "linear", .feature = linear_feature(spec), .added = added};
}

Attended attend_linear(const AttentionSpec& spec, const AttentionCall& call,
                       std::span<const Variable> inputs) {
  ScanCall scan = linear_scan(spec);
  scan.causal = call.causal;
  scan.lengths = call.lengths;
  scan.query_lengths = call.query_lengths;
  return scan_attention(scan, inputs[0], inputs[1], inputs[2]);
}

// The largest of each row, with its gradient: [.., 1].
Variable row_maximum(const Variable& x) {
  Shape shape = x.shape();
  const i64 width = x.size(-1);
  shape[shape.rank() - 1] = 1;
  const std::vector<double> values = x.value().to(DType::f64).to_vector<double>();
  std::vector<i64> index;
  for (auto row = values.begin(); row != values.end(); row += width) {
    index.push_back(std::max_element(row, row + width) - row);
  }
  return gather(x, -1, Tensor::from(index, shape));
}

Variable features(Feature feature, bool query, const Variable& x) {
  switch (feature) {
    case Feature::elu:
      return add(elu(x), Tensor::full({}, 1, x.value().dtype()));
    case Feature::relu: return relu(x);
    default: return exp(query ? sub(x, row_maximum(x)) : x);
  }
}

Attended reference_linear(const AttentionSpec& spec, const AttentionCall& call,
                          std::span<const Variable> inputs) {
  const Feature feature = linear_feature(spec);
  const Variable q = features(feature, true, transpose(inputs[0], 1, 2));   // [B, H, N, E]
  const Variable k = features(feature, false, transpose(inputs[1], 1, 2));  // [B, H, S, E]
  const Tensor seen = visibility(call, q.size(0), q.size(2), k.size(2)).to(q.value().dtype());
  const Variable a = mul(matmul(q, transpose(k, 2, 3)), seen);
  const Variable divisor = add(sum(a, -1), Tensor::full({}, added, q.value().dtype()));
  return transpose(div(matmul(a, transpose(inputs[2], 1, 2)), column(divisor)), 1, 2);
}

AttentionCost cost_linear(const AttentionSpec& spec, const AttentionSizes& s, bool causal,
                          DType type) {
  return scan_cost(linear_feature(spec), s, causal, type);
}

std::unique_ptr<DecodingState> decode_linear(const AttentionSpec& spec, const AttentionSizes& sizes,
                                             DType, i64) {
  return decode_by_scan(linear_scan(spec), sizes);
}

const Registration registered_linear{Mechanism{
    .name = "linear",
    .title = "products of features, summed up in one matrix a head",
    .paper = "A. Katharopoulos, A. Vyas, N. Pappas, F. Fleuret, Transformers are RNNs, ICML 2020, "
             "arXiv 2006.16236",
    .equations = "eqs. 4, 5, 8 to 12",
    .inputs = query_key_value,
    .options = {{.name = "feature",
                 .initial = "elu",
                 .help = "elu + 1, relu, or the exponential",
                 .choices = {"elu", "relu", "exp"},
                 .tried = {"relu", "exp"}}},
    .masks = {.causal = true, .lengths = true, .query_lengths = true},
    .cross = true,
    .strictly_causal = true,
    .unordered_keys = true,
    .linear_in_values = true,
    .drops_weights = false,
    .takes_bf16 = true,
    .scaling = "N",
    .attend = attend_linear,
    .reference = reference_linear,
    .cost = cost_linear,
    .decode = decode_linear}};

}  // namespace
}  // namespace weft
