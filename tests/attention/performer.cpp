// Properties of Performer alone (mechanism page: ops/attention/performer/performer.h).
#include <cmath>

#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"

namespace weft {
namespace {

constexpr const char* kernels[] = {"performer", "performer:kernel=hyperbolic",
                                   "performer:kernel=relu"};

// Keys that grow with their position, so that their maximum rises in every chunk.
std::vector<Tensor> rising(i64 B, i64 N, i64 H, i64 E, i64 M, double most,
                           DType type = DType::f64) {
  const QueryKeyValue in(B, N, N, H, E, M);
  const Tensor k = in.k.clone();
  double* const values = k.data<double>();
  for (i64 i = 0; i < k.count(); ++i) values[i] *= most * double(i / (H * E) % N) / double(N);
  return {in.q.to(type), k.to(type), in.v.to(type)};
}

double mean_square(const Tensor& x) {
  double sum = 0;
  for (const double value : x.to_vector<double>()) sum += value * value;
  return sum / double(x.count());
}

Tensor difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  std::vector<double> values;
  for (std::size_t i = 0; i < x.size(); ++i) values.push_back(x[i] - y[i]);
  return Tensor::from(values, a.shape());
}

TEST_SUITE("attention") {

TEST_CASE("performer: maxima that rise from chunk to chunk change nothing but the rounding") {
  AttentionCall lengths = causal();
  lengths.lengths = lengths_of({150, 66});
  lengths.query_lengths = lengths_of({131, 150});
  for (const char* spec : kernels) {
    for (const AttentionCall& call : {AttentionCall{}, causal(), lengths}) {
      CAPTURE(spec);
      const std::vector<Tensor> in = rising(2, 150, 1, 4, 3, 3);
      check_close(attended_run(spec, in, call), defined_run(spec, in, call));
    }
  }
}

TEST_CASE("performer: the last causal row sees what every row of the full form sees") {
  for (const char* spec : kernels) {
    for (const i64 N : {1, 64, 65, 130}) {
      const std::vector<Tensor> in = rising(1, N, 2, 5, 4, 3);
      const Tensor full = attended(spec, in), past = attended(spec, in, causal());
      check_close(past.slice(1, N - 1, N), full.slice(1, N - 1, N));
    }
  }
}

TEST_CASE("performer: a key of the future changes no bit, however large its maximum is") {
  const std::vector<Tensor> in = rising(1, 100, 1, 4, 3, 1);
  std::vector<Tensor> other = in;
  other[1] = in[1].clone();
  other[1].slice(1, 70, 71).fill(30);
  for (const char* spec : kernels) {
    const Tensor before = attended(spec, in, causal()), after = attended(spec, other, causal());
    CHECK(same_bits(before.slice(1, 0, 70), after.slice(1, 0, 70)));
    CHECK_FALSE(same_bits(before.slice(1, 70, 100), after.slice(1, 70, 100)));
  }
}

TEST_CASE("performer: a maximum that rises by hundreds within a chunk overflows nothing") {
  const std::vector<Tensor> wide = rising(1, 90, 1, 4, 3, 200);
  std::vector<Tensor> in;
  for (const Tensor& x : wide) in.push_back(x.to(DType::f32));
  const Choices decided = chosen("performer", in, causal());
  const std::vector<double> levels = decided.at("key_max").to(DType::f64).to_vector<double>();
  CHECK(levels.back() - levels.front() > 300);
  CHECK(std::is_sorted(levels.begin(), levels.end()));
  check_finite(attended_run("performer", in, causal()));
}

TEST_CASE("performer: decoding goes on with the maximum that stands in the state") {
  const std::vector<Tensor> in = on_device(rising(1, 140, 2, 4, 3, 4));
  for (const char* spec : kernels) {
    CAPTURE(spec);
    const AttentionSpec parsed(spec);
    const Tensor omega = chosen(spec, in, causal()).at("omega").to(tested_device());
    const auto state =
        parsed.mechanism().decode(parsed, {.B = 1, .H = 2, .E = 4, .M = 3}, DType::f64, 140);
    const Tensor wanted = attended(spec, in, causal());
    i64 begin = 0;
    for (const i64 end : {3, 4, 70, 71, 140}) {
      std::vector<Tensor> step;
      for (const Tensor& x : in) step.push_back(x.slice(1, begin, end));
      step.push_back(omega);
      check_close(state->step(step).to(Device{}), wanted.slice(1, begin, end));
      begin = end;
    }
  }
}

TEST_CASE("performer: the more features, the nearer to full attention, as one over the root") {
  if (few_on_device()) return;  // features are drawn on the CPU
  const QueryKeyValue in(1, 20, 20, 2, 4, 3);
  const Tensor exact = attended("full:temperature=0.05", in.list());
  const auto error = [&](const std::string& spec) {
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      AttentionCall call;
      call.random = {.seed = seed};
      sum += mean_square(difference(attended(spec, in.list(), call), exact));
    }
    return std::sqrt(sum / 24);
  };
  for (const std::string kernel : {"softmax", "hyperbolic"}) {
    CAPTURE(kernel);
    const std::string spec = "performer:kernel=" + kernel + ",temperature=0.05,features=";
    const double few = error(spec + "32"), many = error(spec + "512");
    CHECK(few / many > 2.5);  // 4 in the mean
    CHECK(few / many < 6.5);
    CHECK(many < 0.15 * std::sqrt(mean_square(exact)));
  }
}

TEST_CASE("performer: products of features estimate the exponential of the scores without a bias") {
  if (few_on_device()) return;  // features are drawn on the CPU
  // Two keys, of which the second is 0: with one query the ratio of the weights is e^(q·k τ) : 1.
  const QueryKeyValue in(1, 1, 2, 1, 3, 1);
  in.k.slice(1, 1, 2).fill(0);
  const Tensor v = Tensor::from(std::vector<double>{1, 0}, {1, 2, 1, 1});
  const double wanted = attended("full", {in.q, in.k, v}).item();
  const double got = attended("performer:features=20000", {in.q, in.k, v}).item();
  CHECK(got == doctest::Approx(wanted).epsilon(0.03));
  CHECK(attended("performer:features=20000,temperature=0.1", {in.q, in.k, v}).item() ==
        doctest::Approx(attended("full:temperature=0.1", {in.q, in.k, v}).item()).epsilon(0.03));
}

TEST_CASE("performer: rows of omega are orthogonal in blocks, and as long as normal vectors") {
  constexpr i64 E = 6, R = 200;
  const QueryKeyValue in(1, 1, 1, 1, E, 1);
  const auto omega = [&](const char* spec) {
    return chosen(spec, in.list()).at("omega").to_vector<double>();
  };
  const auto product = [&](const std::vector<double>& rows, i64 a, i64 b) {
    double sum = 0;
    for (i64 e = 0; e < E; ++e) sum += rows[std::size_t(a * E + e)] * rows[std::size_t(b * E + e)];
    return sum;
  };
  const std::vector<double> orthogonal = omega("performer:features=200");
  const std::vector<double> independent = omega("performer:features=200,orthogonal=0");
  double squares = 0, others = 0;
  for (i64 a = 0; a < R; ++a) {
    squares += product(orthogonal, a, a) / R, others += product(independent, a, a) / R;
    for (i64 b = a / E * E; b < a; ++b) CHECK(std::abs(product(orthogonal, a, b)) < 1e-12);
  }
  CHECK(squares == doctest::Approx(E).epsilon(0.15));  // χ² of E
  CHECK(others == doctest::Approx(E).epsilon(0.15));
  CHECK(std::abs(product(independent, 0, 1)) > 1e-6);
}

TEST_CASE(
    "performer: a layer draws as often as the option says, E ln E rows without another number") {
  const auto sheet = [](const char* spec) {
    return attention_inputs(AttentionSpec(spec), {.E = 8}).back();
  };
  CHECK(sheet("performer").redraw == 1000);
  CHECK(sheet("performer:redraw=0").redraw == 0);
  CHECK(sheet("performer").shape == Shape{16, 8});  // 16.6
  CHECK(sheet("performer:features=5").shape == Shape{5, 8});
  CHECK(attention_inputs(AttentionSpec("performer"), {.E = 1}).back().shape == Shape{1, 1});
}

TEST_CASE("performer: what it refuses") {
  CHECK_ERROR(AttentionSpec("performer:features=-1"), "features");
  CHECK_ERROR(AttentionSpec("performer:redraw=-1"), "redraw");
  CHECK_ERROR(AttentionSpec("performer:kernel=cosine"), "kernel");
  CHECK_ERROR(AttentionSpec("performer:orthogonal=2"),
              "attention performer: orthogonal is a number in [0, 1], got '2'");
  const std::vector<Tensor> in = QueryKeyValue(1, 4, 4, 2, 3, 2).list();
  std::vector<Tensor> with_omega = in;
  with_omega.push_back(normal({5, 4}, 9));
  CHECK_ERROR(attended("performer", with_omega), "E = 4, but E = 3 elsewhere");
  AttentionCall call;
  call.given["key_max"] = Tensor::zeros({1, 2, 4}, DType::f64);
  CHECK_ERROR(attended("performer", in, call), "key_max");
  const AttentionSpec spec("performer:features=5");
  const auto state = spec.mechanism().decode(spec, {.B = 1, .H = 2, .E = 3, .M = 2}, DType::f64, 8);
  std::vector<Tensor> step = on_device(in);
  step.push_back(normal({6, 3}, 9).to(tested_device()));
  CHECK_ERROR(state->step(step), "performer: decoding needs omega [5,3], got [6,3]");
}

}

}  // namespace
}  // namespace weft
