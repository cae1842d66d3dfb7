// Performer: the definition, random features, decoding and the fact sheet. Equations: performer.h.
#include "ops/attention/performer/performer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention/definitions.h"
#include "ops/attention/engines/scan/attention.h"
#include "ops/attention/scores.h"
#include "ops/matmul/matmul.h"
#include "ops/normals/normals.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace weft {
namespace {

// --- options

Feature performer_feature(const AttentionSpec& spec) {
  const std::string word = spec.word("kernel");
  return word == "softmax"      ? Feature::random_exponential
         : word == "hyperbolic" ? Feature::random_hyperbolic
                                : Feature::random_relu;
}

// The constant that is added to every feature.
double constant_of(Feature feature) {
  return feature == Feature::random_exponential ? 1e-4 : feature == Feature::random_relu ? 1e-3 : 0;
}

// r
i64 feature_rows(const AttentionSpec& spec, i64 E) {
  const i64 given = spec.integer("features");
  return given > 0 ? given : std::max<i64>(1, static_cast<i64>(double(E) * std::log(double(E))));
}

ScanCall performer_scan(const AttentionSpec& spec, i64 E) {
  const Feature feature = performer_feature(spec);
  return {.name = "performer",
          .feature = feature,
          .scale = std::sqrt(temperature_of(spec, E)),
          .constant = constant_of(feature)};
}

// --- Ω

void draw_independent(RandomKey key, const Tensor& omega) { draw_normals(key, 1, omega); }

// x minus its projections on rows of unit length.
void make_orthogonal(std::span<double> x, std::span<const double> rows) {
  const std::size_t E = x.size();
  for (std::size_t begin = 0; begin < rows.size(); begin += E) {
    double product = 0;
    for (std::size_t e = 0; e < E; ++e) product += rows[begin + e] * x[e];
    for (std::size_t e = 0; e < E; ++e) x[e] -= product * rows[begin + e];
  }
}

double norm_of(std::span<const double> x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}

// Directions from normal vectors by Gram-Schmidt, which makes every set of directions equally
// likely; lengths from further normal vectors.
void draw_orthogonal(RandomKey key, const Tensor& omega) {
  const i64 R = omega.size(0), E = omega.size(1);
  std::vector<double> directions(std::size_t(R * E)), lengths;
  for (i64 r = 0; r < R; ++r) {
    const std::span row = std::span(directions).subspan(std::size_t(r * E), std::size_t(E));
    const i64 block = r / E * E;
    std::vector<double> other;
    for (i64 e = 0; e < E; ++e) {
      row[std::size_t(e)] = normal_number(key, 2, 2 * (r * E + e));
      other.push_back(normal_number(key, 2, 2 * (r * E + e) + 1));
    }
    lengths.push_back(norm_of(other));
    const std::span before =
        std::span(directions).subspan(std::size_t(block * E), std::size_t((r - block) * E));
    for (int pass = 0; pass < 2; ++pass) {  // one pass leaves rounding errors
      make_orthogonal(row, before);
      const double norm = norm_of(row);
      for (double& value : row) value /= norm;
    }
  }
  for (i64 i = 0; i < R * E; ++i) directions[std::size_t(i)] *= lengths[std::size_t(i / E)];
  omega.copy_from(Tensor::from(directions, omega.shape()));
}

AttentionInputs inputs_of(const AttentionSpec& spec, const AttentionSizes& sizes) {
  AttentionInputs inputs = query_key_value(spec, sizes);
  inputs.push_back({.name = "omega",
                    .role = Role::drawn,
                    .axes = "features E",
                    .shape = {feature_rows(spec, sizes.E), sizes.E},
                    .draw = spec.integer("orthogonal") == 1 ? draw_orthogonal : draw_independent,
                    .redraw = spec.integer("redraw")});
  return inputs;
}

// --- the kernel

Shape key_maxima(const AttentionCall& call, i64 B, i64 N, i64 H) {
  return {B, H, call.causal ? N : 1};
}

Attended attend_performer(const AttentionSpec& spec, const AttentionCall& call,
                          std::span<const Variable> inputs) {
  const Tensor& q = inputs[0].value();
  const i64 B = q.size(0), N = q.size(1), H = q.size(2);
  const Shape queries{B, H, N}, keys = key_maxima(call, B, N, H);
  const DType type = accumulator_of(q.dtype());
  ScanCall scan = performer_scan(spec, q.size(3));
  scan.causal = call.causal;
  scan.lengths = call.lengths;
  scan.query_lengths = call.query_lengths;
  scan.omega = inputs[3].value().packed();
  if (has_levels(scan.feature)) {
    const Mechanism& mechanism = spec.mechanism();
    scan.query_max = given_choice(mechanism, call, "query_max", queries, type);
    scan.key_max = given_choice(mechanism, call, "key_max", keys, type);
    make_maxima(scan, q);
  } else if (call.chosen != nullptr) {
    scan.query_max = Tensor::zeros(queries, type, q.device());
    scan.key_max = Tensor::zeros(keys, type, q.device());
  }
  const Variable out = scan_attention(scan, inputs[0], inputs[1], inputs[2]);
  report_choice(call, "query_max", scan.query_max);
  report_choice(call, "key_max", scan.key_max);
  return out;
}

// --- the definition

// u of x' [B, H, L, E]; for hyperbolic features u and −u.
Variable products_of(Feature feature, const Variable& x, const Variable& omega) {
  const Variable u = matmul(x, transpose(omega, 0, 1));
  if (feature != Feature::random_hyperbolic) return u;
  const Variable both[] = {u, scale(u, -1)};
  return concatenate(std::span<const Variable>(both), 3);
}

// − ‖x'‖²/2, and the exponents of features.
Variable exponents_of(const Variable& u, const Variable& x) {
  return sub(u, column(scale(sum(mul(x, x), -1), 0.5)));
}

// The largest of every row of x [B, H, L, F], [B, H, L].
Tensor row_maxima(const Tensor& x) {
  const std::vector<double> values = x.to(DType::f64).to_vector<double>();
  std::vector<double> most;
  for (auto row = values.begin(); row != values.end(); row += x.size(3)) {
    most.push_back(*std::max_element(row, row + x.size(3)));
  }
  return Tensor::from(most, {x.size(0), x.size(1), x.size(2)});
}

// c of every query: over the keys that it sees, [B, H, N]; 0 if it sees none. z: [B, H, S, F].
Tensor key_maxima_of(const Tensor& seen, const Tensor& z) {
  const i64 B = z.size(0), H = z.size(1), S = z.size(2), N = seen.size(2);
  const std::vector<double> of_keys = row_maxima(z).to_vector<double>();
  const std::vector<double> visible = seen.to_vector<double>();
  std::vector<double> most;
  for (i64 i = 0; i < B * H * N; ++i) {
    const i64 head = i / N;
    double largest = -std::numeric_limits<double>::infinity();
    for (i64 j = 0; j < S; ++j) {
      if (visible[std::size_t((head / H * N + i % N) * S + j)] == 0) continue;
      largest = std::max(largest, of_keys[std::size_t(head * S + j)]);
    }
    most.push_back(std::isinf(largest) ? 0 : largest);
  }
  return Tensor::from(most, {B, H, N});
}

Variable plus(const Variable& x, double constant) {
  return add(x, Tensor::full({}, constant, x.value().dtype()));
}

// a_ij for relu.
Variable relu_weights(const Variable& u_q, const Variable& u_k) {
  const auto phi = [](const Variable& u) {
    return plus(relu(u), constant_of(Feature::random_relu));
  };
  return matmul(phi(u_q), transpose(phi(u_k), 2, 3));
}

// a_ij for exponentials, where query i subtracts c_i from every key. The largest c is subtracted
// from the exponents of all keys, and e^(c − c_i) compensates.
Variable exponential_weights(Feature feature, const AttentionCall& call, const Tensor& seen,
                             const Variable& q, const Variable& k, const Variable& u_q,
                             const Variable& u_k) {
  const DType type = q.value().dtype();
  const Variable z_q = exponents_of(u_q, q), z_k = exponents_of(u_k, k);
  const bool hyperbolic = feature == Feature::random_hyperbolic;
  const auto given = [&](const char* name, auto&& otherwise) {
    const auto found = call.given.find(name);
    return found == call.given.end() ? otherwise() : found->second.to(DType::f64);
  };
  const Tensor query_max =
      given("query_max", [&] { return row_maxima((hyperbolic ? z_q : u_q).value()); });
  const Tensor key_max =
      given("key_max", [&] { return key_maxima_of(seen, (hyperbolic ? z_k : u_k).value()); });
  const std::vector<double> levels = key_max.to_vector<double>();
  const double most = levels.empty() ? 0 : *std::max_element(levels.begin(), levels.end());
  std::vector<double> factors;
  for (const double level : levels) factors.push_back(std::exp(most - level));

  const double constant = constant_of(feature);
  const Variable phi_q = plus(exp(sub(z_q, column(query_max.to(type)))), constant);
  const Variable phi_k = exp(plus(z_k, -most));
  const Variable products = matmul(phi_q, transpose(phi_k, 2, 3));
  const Variable scaled = mul(products, column(Tensor::from(factors, key_max.shape()).to(type)));
  return add(scaled, column(scale(sum(phi_q, -1), constant)));
}

// 1 if a query sees nothing, [B, 1, N].
Tensor blind(const Tensor& seen, DType type) {
  std::vector<double> values = seen.to_vector<double>(), none;
  const i64 S = seen.size(3);
  for (auto row = values.begin(); row != values.end(); row += S) {
    none.push_back(std::find(row, row + S, 1.0) == row + S ? 1 : 0);
  }
  return Tensor::from(none, {seen.size(0), 1, seen.size(2)}).to(type);
}

Attended reference_performer(const AttentionSpec& spec, const AttentionCall& call,
                             std::span<const Variable> inputs) {
  const Feature feature = performer_feature(spec);
  const double root = std::sqrt(temperature_of(spec, inputs[0].size(3)));
  const Variable q = scale(transpose(inputs[0], 1, 2), root);  // [B, H, N, E]
  const Variable k = scale(transpose(inputs[1], 1, 2), root);  // [B, H, S, E]
  const DType type = q.value().dtype();
  const Tensor seen = visibility(call, q.size(0), q.size(2), k.size(2));
  const Variable u_q = products_of(feature, q, inputs[3]), u_k = products_of(feature, k, inputs[3]);
  const Variable weights = feature == Feature::random_relu
                               ? relu_weights(u_q, u_k)
                               : exponential_weights(feature, call, seen, q, k, u_q, u_k);
  const Variable a = mul(weights, seen.to(type));
  const Variable divisor = add(sum(a, -1), blind(seen, type));
  return transpose(div(matmul(a, transpose(inputs[2], 1, 2)), column(divisor)), 1, 2);
}

// --- the sheet

AttentionCost cost_performer(const AttentionSpec& spec, const AttentionSizes& s, bool causal,
                             DType type) {
  return scan_cost(performer_feature(spec), s, causal, type, feature_rows(spec, s.E));
}

std::unique_ptr<DecodingState> decode_performer(const AttentionSpec& spec,
                                                const AttentionSizes& sizes, DType, i64) {
  return decode_by_scan(performer_scan(spec, sizes.E), sizes, feature_rows(spec, sizes.E));
}

const Registration registered_performer{Mechanism{
    .name = "performer",
    .title = "softmax attention by random features",
    .paper = "K. Choromanski et al., Rethinking attention with Performers, ICLR 2021, "
             "arXiv 2009.14794",
    .equations = "eqs. 5 to 7 and 9",
    .inputs = inputs_of,
    .choices = {{.name = "query_max", .shape = "B H N", .integer = false},
                {.name = "key_max", .shape = "B H N (causal) or B H 1", .integer = false}},
    .options = {{.name = "kernel",
                 .initial = "softmax",
                 .help = "positive features, both signs of them, or relu",
                 .choices = {"softmax", "hyperbolic", "relu"}},
                {.name = "features",
                 .initial = "0",
                 .help = "rows of omega; 0: E ln E",
                 .least = 0,
                 .most = 65536,
                 .tried = {"7"}},
                flag_option("orthogonal", true, "0: the rows of omega are drawn independently"),
                {.name = "redraw",
                 .initial = "1000",
                 .help = "training steps after which omega is drawn anew; 0: never",
                 .least = 0,
                 .most = 1 << 30,
                 .tried = {"3"}},
                temperature_option()},
    .masks = {.causal = true, .lengths = true, .query_lengths = true},
    .cross = true,
    .strictly_causal = true,
    .unordered_keys = true,
    .linear_in_values = true,
    .row_sums = RowSums::one,
    .drops_weights = false,
    .takes_bf16 = true,
    .scaling = "N",
    .attend = attend_performer,
    .reference = reference_performer,
    .cost = cost_performer,
    .decode = decode_performer}};

}  // namespace
}  // namespace weft
