// Properties of shared-QK attention alone (page: ops/attention/shared_full/shared_full.h).
#include <cmath>

#include "autograd/observer.h"
#include "ops/pointwise/pointwise.h"
#include "tests/attention/run_attention.h"

namespace weft {
namespace {

TEST_SUITE("attention") {

TEST_CASE("shared-full: full attention of q, q, v; the gradient of q has both paths") {
  const Tensor q = normal({2, 33, 3, 5}, 1), v = normal({2, 33, 3, 4}, 2);
  for (const bool causal : {false, true}) {
    AttentionCall call;
    call.causal = causal;
    const Run shared = attended_run("shared-full", {q, v}, call);
    const auto twice = [&](std::span<const Variable> in) {
      const std::vector<Variable> list{in[0], in[0], in[1]};
      return std::vector{attend(AttentionSpec("full"), call, list).out};
    };
    check_close(shared, run(twice, {q, v}));
  }
}

TEST_CASE("shared-full: normalised keys have length 1, whatever the queries' lengths are") {
  const Tensor q = normal({2, 20, 2, 5}, 1), v = normal({2, 20, 2, 4}, 2);
  const Tensor k = q.clone();
  for (i64 row = 0; row < k.count() / 5; ++row) {
    double* const x = k.data<double>() + 5 * row;
    double squares = 0;
    for (int e = 0; e < 5; ++e) squares += x[e] * x[e];
    for (int e = 0; e < 5; ++e) x[e] /= std::sqrt(squares);
  }
  CHECK(relative_error(attended("shared-full:normalize_keys=1", {q, v}),
                       attended("full", {q, k, v})) <= tolerance::forward_f64);
}

TEST_CASE("shared-full: a query of zeros has a key of zeros and no gradient through it") {
  const Tensor v = normal({2, 37, 2, 4}, 2);
  for (const std::string spec : {"shared-full:normalize_keys=1", "shared-full"}) {
    for (const bool all : {false, true}) {
      CAPTURE(fmt::format("{} {}", spec, all));
      const Tensor q = with_zero_rows(normal({2, 37, 2, 3}, 1), all);
      for (const AttentionCall& call : {AttentionCall{}, causal()}) {
        const Run got = attended_run(spec, {q, v}, call);
        check_finite(got);
        check_close(got, defined_run(spec, {q, v}, call));
      }
    }
  }
  // The remaining dq if the query is 0: the gradient of full attention with such keys.
  const Tensor q = with_zero_rows(normal({2, 37, 2, 3}, 1), false), k = q.clone();
  for (i64 row = 0; row < k.count() / 3; ++row) {
    double* const x = k.data<double>() + 3 * row;
    const double norm = std::hypot(x[0], x[1], x[2]);
    for (int e = 0; e < 3; ++e) x[e] = norm == 0 ? 0 : x[e] / norm;
  }
  const Run shared = attended_run("shared-full:normalize_keys=1", {q, v});
  const Run apart = attended_run("full", {q, k, v});
  const auto at_zero = [](const Run& run) { return run.gradients[0].slice(1, 5, 6); };
  CHECK(relative_error(at_zero(shared), at_zero(apart)) <= tolerance::backward_f64);
}

// Counts the numbers that ops make and that are not finite.
struct NotFinite final : Observer {
  i64 count = 0;

  void made(const char*, std::span<const Variable>, std::span<const Tensor> values) override {
    for (const Tensor& value : values) {
      for (const double x : value.to(Device{}).to(DType::f64).to_vector<double>()) {
        count += !std::isfinite(x);
      }
    }
  }
  void gathered(const char*, std::size_t, const Gradient&) override {}
};

TEST_CASE("shared-full: the key of a query of zeros is made of finite numbers") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor q = with_zero_rows(normal({2, 37, 2, 3}, 1), false).to(type);
    NotFinite seen;
    const Run run =
        attended_run("shared-full:normalize_keys=1", {q, normal({2, 37, 2, 4}, 2).to(type)});
    CHECK(seen.count == 0);
    check_finite(run);
  }
}

TEST_CASE("shared-full: a NaN beyond the lengths reaches no key and no gradient") {
  const Tensor q = normal({2, 9, 2, 3}, 1), v = normal({2, 9, 2, 2}, 2);
  q.slice(0, 1, 2).slice(1, 4, 9).fill(std::nan(""));
  const AttentionCall call = with_lengths({9, 4});
  check_finite(attended_run("shared-full:normalize_keys=1", {q, v}, call));
}

TEST_CASE("shared-full: lengths count for queries and keys") {
  const Tensor q = normal({2, 9, 2, 3}, 1), v = normal({2, 9, 2, 2}, 2);
  const AttentionCall call = with_lengths({9, 4});
  const Tensor out = attended("shared-full", {q, v}, call);
  for (const double value : out.slice(0, 1, 2).slice(1, 4, 9).clone().to_vector<double>()) {
    CHECK(value == 0);
  }
  const auto cut = [](const Tensor& x) { return x.slice(0, 1, 2).slice(1, 0, 4).clone(); };
  CHECK(relative_error(cut(out), attended("shared-full", {cut(q), cut(v)})) <=
        tolerance::forward_f64);
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
