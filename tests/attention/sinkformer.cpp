// Properties of Sinkformer alone (mechanism page: ops/attention/sinkformer/sinkformer.h).
#include <cmath>

#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"

namespace weft {
namespace {

// The weights by the equations, not in the log domain, item by item: [B, N, H, S].
Tensor scaled_weights(const Tensor& q, const Tensor& k, i64 steps, std::span<const i64> queries,
                      std::span<const i64> keys) {
  const i64 B = q.size(0), N = q.size(1), H = q.size(2), E = q.size(3), S = k.size(1);
  Tensor weights = Tensor::zeros({B, N, H, S}, DType::f64);
  const View<double, 4> a = weights.view<double, 4>();
  const View<const double, 4> left = q.view<const double, 4>(), right = k.view<const double, 4>();
  for (i64 b = 0; b < B; ++b) {
    const i64 n = queries[std::size_t(b)], s = keys[std::size_t(b)];
    for (i64 h = 0; h < H; ++h) {
      for (i64 i = 0; i < n; ++i) {
        for (i64 j = 0; j < s; ++j) {
          double z = 0;
          for (i64 e = 0; e < E; ++e) z += left(b, i, h, e) * right(b, j, h, e);
          a(b, i, h, j) = std::exp(z / std::sqrt(double(E)));
        }
      }
      for (i64 t = 0; t < steps; ++t) {
        for (i64 line = 0; line < (t % 2 == 0 ? n : s); ++line) {
          const auto at = [&](i64 x) -> double& {
            return t % 2 == 0 ? a(b, line, h, x) : a(b, x, h, line);
          };
          double sum = 0;
          for (i64 x = 0; x < (t % 2 == 0 ? s : n); ++x) sum += at(x);
          const double wanted = t % 2 == 0 ? 1 : double(n) / double(s);
          for (i64 x = 0; x < (t % 2 == 0 ? s : n); ++x) at(x) *= wanted / sum;
        }
      }
    }
  }
  return weights;
}

// The weights of the mechanism.
Tensor weights_of(const std::string& spec, const QueryKeyValue& in,
                  const AttentionCall& call = {}) {
  const Tensor unit = unit_values(in.k.size(0), in.k.size(1), in.k.size(2));
  return attended(spec, {in.q, in.k, unit}, call);
}

std::string with_steps(i64 steps) { return "sinkformer:iterations=" + std::to_string(steps); }

TEST_SUITE("attention") {

TEST_CASE("sinkformer: weights are exp z, divided by sums of rows and columns in turn") {
  const QueryKeyValue in(3, 70, 41, 2, 4, 3);
  AttentionCall call;
  const std::vector<i64> queries{70, 33, 1}, keys{20, 41, 7};
  call.query_lengths = lengths_of(queries);
  call.lengths = lengths_of(keys);
  for (const i64 steps : {1, 2, 3, 4, 7}) {
    CAPTURE(steps);
    const Tensor wanted = scaled_weights(in.q, in.k, steps, queries, keys);
    check_close(weights_of(with_steps(steps), in, call), wanted);
  }
}

TEST_CASE("sinkformer: one half step is full attention") {
  const QueryKeyValue in(2, 70, 131, 3, 4, 5);
  AttentionCall call = with_lengths({131, 66});
  for (const double rate : {0.0, 0.4}) {
    call.dropout = rate;
    call.random = {1, 2, 3};
    const Run wanted = attended_run("full", in.list(), call);
    check_close(attended_run(with_steps(1), in.list(), call), wanted);
  }
}

TEST_CASE("sinkformer: constant columns, and their gradient, are those of the definition") {
  const QueryKeyValue in(2, 70, 67, 2, 5, 6);
  AttentionCall call;
  call.query_lengths = lengths_of({70, 9});
  for (const double rate : {0.0, 0.3}) {
    call.dropout = rate;
    call.random = {1, 2, 3};
    for (const i64 steps : {2, 3, 4}) {
      CAPTURE(steps);
      const std::string spec = with_steps(steps) + ",detach_columns=1";
      const Run got = attended_run(spec, in.list(), call);
      check_close(got, defined_run(spec, in.list(), call));
      const Run through = attended_run(with_steps(steps), in.list(), call);
      check_close(got.outputs[0], through.outputs[0]);
      CHECK(relative_error(got.gradients[0], through.gradients[0]) > 1e-3);
    }
  }
}

TEST_CASE(
    "sinkformer: many half steps give rows and columns their sums, whatever is added to them") {
  const i64 N = 20, S = 30;
  const QueryKeyValue in(1, N, S, 2, 5, 3);
  const Tensor weights = weights_of(with_steps(801), in);
  const View<const double, 4> a = weights.view<const double, 4>();
  for (i64 h = 0; h < 2; ++h) {
    for (i64 i = 0; i < N; ++i) {
      double sum = 0;
      for (i64 j = 0; j < S; ++j) sum += a(0, i, h, j);
      CHECK(sum == doctest::Approx(1).epsilon(1e-12));
    }
    for (i64 j = 0; j < S; ++j) {
      double sum = 0;
      for (i64 i = 0; i < N; ++i) sum += a(0, i, h, j);
      CHECK(sum == doctest::Approx(double(N) / double(S)).epsilon(1e-9));
    }
  }
  // Two more elements: [q, x_i, 1] · [k, 1, y_j] = q · k + x_i + y_j.
  const Tensor q = normal({1, N, 2, 7}, 5), k = normal({1, S, 2, 7}, 6);
  q.slice(3, 0, 5).copy_from(in.q);
  k.slice(3, 0, 5).copy_from(in.k);
  q.slice(3, 6, 7).fill(1);
  k.slice(3, 5, 6).fill(1);
  const std::string temperature = ",temperature=0.4";
  const Tensor got = attended(with_steps(801) + temperature, {q, k, in.v});
  const Tensor wanted = attended(with_steps(801) + temperature, in.list());
  CHECK(relative_error(got, wanted) < 1e-9);
  CHECK(relative_error(attended("full:temperature=0.4", {q, k, in.v}), wanted) > 1e-2);
}

// Two keys have tiny weights, the largest of them those of two late queries. The scales of their
// columns that give them their share exceed e^88.
TEST_CASE("sinkformer: symmetric scores have a symmetric limit") {
  const i64 N = 30;
  const Tensor q = random_normal({2, N, 2, 4}, DType::f64, 1);
  const auto asymmetry = [&](i64 steps) {
    const Tensor a = attended(with_steps(steps), {q, q, unit_values(2, N, 2)});
    return relative_error(a, a.transpose(1, 3));
  };
  CHECK(asymmetry(1) > 0.1);
  CHECK(asymmetry(99) <= 1e-12);
}

TEST_CASE("sinkformer: scores far apart, in f32") {
  const QueryKeyValue in(1, 70, 66, 1, 2, 3);
  in.q.slice(3, 0, 1).fill(20);
  in.k.slice(3, 0, 1).fill(10);
  in.q.slice(1, 65, 67).slice(3, 0, 1).fill(5);
  in.k.slice(1, 3, 5).slice(3, 0, 1).fill(-2);
  for (const i64 steps : {2, 3, 5}) {
    CAPTURE(steps);
    const Run wanted = defined_run(with_steps(steps), in.list());
    std::vector<Tensor> narrow;
    for (const Tensor& x : in.list()) narrow.push_back(x.to(DType::f32));
    const Run got = attended_run(with_steps(steps), narrow);
    check_finite(got);
    CHECK(relative_error(got.outputs[0], wanted.outputs[0]) < 1e-3);
    for (const double error : gradient_errors(got, wanted)) CHECK(error < 1e-2);
    check_close(attended_run(with_steps(steps), in.list()), wanted);
  }
}

TEST_CASE("sinkformer: what it refuses") {
  const QueryKeyValue in(1, 4, 4, 2, 3, 2);
  CHECK_ERROR(attended(with_steps(0), in.list()),
              "attention sinkformer: iterations is a number in [1, 1000], got '0'");
  CHECK_ERROR(attended("sinkformer:detach_columns=2", in.list()),
              "attention sinkformer: detach_columns is a number in [0, 1], got '2'");
  CHECK_ERROR(AttentionSpec(with_steps(1) + ",detach_columns=1"),
              "sinkformer: detach_columns=1 has an effect only with iterations!=1");
  CHECK_ERROR(attended("sinkformer", in.list(), causal()), "sinkformer: has no causal form");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
