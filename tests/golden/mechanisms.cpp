// Every mechanism computes what it computed when its golden lines were written: output and
// gradients, in both types.
#include "tests/attention/sample.h"
#include "tests/golden/golden.h"
#include "tests/threads.h"

namespace weft {
namespace {

using nlohmann::json;

// Inputs are exact in f32, so that both types get the same.
Tensor rounded(const Tensor& x) { return x.to(DType::f32).to(DType::f64); }

json settings_of(const Sample& sample) {
  const AttentionSizes& s = sample.sizes;
  const auto values = [](const Tensor& lengths) {
    return lengths.defined() ? lengths.to_vector<i64>() : std::vector<i64>{};
  };
  json shapes = json::array();
  for (const Tensor& input : sample.inputs) {
    json shape = json::array();
    for (int axis = 0; axis < input.rank(); ++axis) shape.push_back(input.size(axis));
    shapes.push_back(shape);
  }
  return {{"spec", sample.spec.text()},
          {"sizes", {s.B, s.N, s.S, s.H, s.E, s.M}},
          {"shapes", shapes},
          {"causal", sample.call.causal},
          {"lengths", values(sample.call.lengths)},
          {"query_lengths", values(sample.call.query_lengths)},
          {"dropout", sample.call.dropout}};
}

Sample sample_of(const json& line) {
  const AttentionSpec spec(line["spec"].get<std::string>());
  const std::vector<i64> n = line["sizes"];
  const AttentionSizes sizes{
      .B = n[0], .N = n[1], .S = n[2], .H = n[3], .E = n[4], .M = n[5], .d = n[3] * n[5]};
  AttentionCall call;
  call.causal = line["causal"];
  const auto lengths = [&](const char* name) {
    const std::vector<i64> values = line[name];
    return values.empty() ? Tensor() : Tensor::from(values, {sizes.B});
  };
  call.lengths = lengths("lengths"), call.query_lengths = lengths("query_lengths");
  call.dropout = line["dropout"];
  call.random = {5, 6, 7};
  std::vector<Tensor> inputs;
  const AttentionInputs sheets = attention_inputs(spec, sizes);
  for (const json& sides : line["shapes"]) {
    Shape shape;
    for (const json& side : sides) shape.push_back(side);
    const Tensor numbers = random_normal(shape, DType::f64, 1001 + inputs.size());
    inputs.push_back(rounded(as_it_starts(numbers, sheets[inputs.size()])));
  }
  // The results of lsh must not depend on how its planes are drawn.
  if (spec.mechanism().name == "lsh") {
    const Shape planes{spec.integer("rounds"), spec.integer("buckets") / 2, sizes.E};
    call.given["planes"] = rounded(random_normal(planes, DType::f64, 2001));
  }
  return {spec, sizes, call, inputs,
          line["spec"].get<std::string>() + " " + line.dump().substr(0, 300)};
}

// "out", then the gradients in the order of the inputs.
std::vector<Tensor> tensors_of(const Run& run) {
  std::vector<Tensor> all = {run.outputs[0]};
  all.insert(all.end(), run.gradients.begin(), run.gradients.end());
  return all;
}

void check(const Run& run, const json& digests, double forward, double backward) {
  const std::vector<Tensor> all = tensors_of(run);
  REQUIRE(all.size() == digests.size());
  double largest = 0;
  for (const json& digest : digests) largest = std::max(largest, digest[0].get<double>());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    // A gradient that vanishes, that of a query with one key for example, has only the rounding
    // errors of sums that cancel: these are compared with the size of the other gradients.
    const bool vanishes = digests[i][0].get<double>() <= 1e-12 * largest;
    CHECK(golden::digest_error(all[i], digests[i], (vanishes ? 1 : 1e-3) * largest) <=
          golden::deviations * (i == 0 ? forward : backward));
  }
}

TEST_SUITE("golden") {

// Of every call with WEFT_TEST_ALL=1.
TEST_CASE("golden: write mechanisms" * doctest::skip()) {
  const ThreadsOf one(1);
  std::vector<nlohmann::ordered_json> lines;
  const AttentionSizes self{.B = 4, .N = 37, .S = 37, .H = 3, .E = 5, .M = 4},
      cross{.B = 4, .N = 11, .S = 70, .H = 2, .E = 8, .M = 3};
  for (const auto& [sizes, variety] :
       {std::pair{self, Variety{}}, std::pair{cross, Variety{.options = false}}}) {
    for (const Sample& taken : samples(sizes, DType::f64, variety)) {
      nlohmann::ordered_json line = settings_of(taken);
      json digests = json::array();
      for (const Tensor& x : tensors_of(sample_of(line).run())) {
        digests.push_back(golden::digest(x));
      }
      line["tensors"] = digests;
      lines.push_back(line);
    }
  }
  golden::write("mechanisms.jsonl", lines);
}

TEST_CASE("golden: every mechanism's output and gradients") {
  const ThreadsOf one(1);
  const std::vector<json> lines = golden::read("mechanisms.jsonl");
  const std::size_t apart = sanitized && !all_wanted() ? 16 : 1;
  for (std::size_t i = 0; i < lines.size(); i += apart) {
    Sample sample = sample_of(lines[i]);
    CAPTURE(sample.text);
    check(sample.run(), lines[i]["tensors"], 1e-12, 1e-12);
    Sample narrow = sample.decided().with(in_f32(sample.inputs));
    for (auto& [name, choice] : narrow.call.given) {
      if (choice.dtype() == DType::f64) choice = choice.to(DType::f32);
    }
    check(narrow.run(), lines[i]["tensors"], tolerance::forward_f32, tolerance::backward_f32);
  }
}

TEST_CASE("golden: every mechanism is in the file") {
  std::string known;
  for (const json& line : golden::read("mechanisms.jsonl")) {
    known += "\n" + AttentionSpec(line["spec"].get<std::string>()).mechanism().name + "\n";
  }
  for (const Mechanism* mechanism : mechanisms()) {
    CHECK_MESSAGE(contains(known, "\n" + mechanism->name), mechanism->name);
  }
}

}  // TEST_SUITE("golden")

}  // namespace
}  // namespace weft
