// Properties of CSP at a finite temperature alone (page: ops/attention/csp/transport.h).
#include <algorithm>
#include <cmath>

#include "tests/attention/run_attention.h"

namespace weft {
namespace {

using Matrix = std::vector<std::vector<double>>;

// exp(a bᵀ / τ) whose rows, then columns, are divided by their sums, t times: eq. 9 as printed.
Matrix plan(const std::vector<double>& a, const std::vector<double>& b, double temperature, int t) {
  const std::size_t g = a.size();
  Matrix T(g, std::vector<double>(g));
  for (std::size_t i = 0; i < g; ++i) {
    for (std::size_t j = 0; j < g; ++j) T[i][j] = std::exp(a[i] * b[j] / temperature);
  }
  for (int step = 0; step < 2 * t; ++step) {
    for (std::size_t i = 0; i < g; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < g; ++j) sum += step % 2 == 0 ? T[i][j] : T[j][i];
      for (std::size_t j = 0; j < g; ++j) (step % 2 == 0 ? T[i][j] : T[j][i]) /= sum;
    }
  }
  return T;
}

// out [B, N, H, M] of v by loops, without lengths; channel c is shifted by J[c].
Tensor transported(const Tensor& v, const std::vector<i64>& J, i64 group, double temperature,
                   int t) {
  const i64 B = v.size(0), N = v.size(1), C = v.size(2) * v.size(3);
  const Tensor out = Tensor::zeros(v.shape(), DType::f64);
  const double* const x = v.data<double>();
  for (i64 b = 0; b < B; ++b) {
    for (i64 first = 0; first < N; first += group) {
      const i64 g = std::min(group, N - first);
      const auto samples = [&](i64 c) {
        std::vector<double> u;
        for (i64 n = first; n < first + g; ++n) {
          u.push_back(x[(b * N + (n - J[std::size_t(c)] + N) % N) * C + c]);
        }
        return u;
      };
      for (i64 c = 0; c < C; ++c) {
        const std::vector<double> u = samples(c);
        const Matrix T = plan(samples(0), u, temperature, t);
        for (i64 i = 0; i < g; ++i) {
          for (i64 j = 0; j < g; ++j) {
            out.data<double>()[(b * N + first + i) * C + c] +=
                T[std::size_t(i)][std::size_t(j)] * u[std::size_t(j)];
          }
        }
      }
    }
  }
  return out;
}

TEST_SUITE("attention") {

TEST_CASE("csp: sinkhorn is eq. 9 of the paper") {
  const Tensor v = normal({few_on_device() ? 1 : 2, 23, 2, 3}, 1);
  const std::vector<i64> linear{0, 4, 8, 12, 16, 20};  // (c − 1) ⌈23/6⌉
  for (const i64 group : {2, 6, 23}) {
    for (const int t : {1, 2, 7}) {
      if (fewest_on_device() && t == 7) continue;
      const std::string spec = fmt::format("csp:sinkhorn={},temperature=0.7,group={}", t, group);
      CAPTURE(spec);
      check_close(attended(spec, {v}), transported(v, linear, group, 0.7, t));
    }
  }
  check_close(attended("csp:sinkhorn=2,groups=4,shift=none", {v}),
              transported(v, std::vector<i64>(6, 0), 6, 1, 2));
}

// The relative distance of two outputs.
double apart(const std::string& spec, const Tensor& v, const std::string& limit) {
  return relative_error(attended(spec, {v}), attended(limit, {v}));
}

// Groups of 6 whose samples are at least 0.35 apart, so that no other permutation comes close.
Tensor samples_apart() {
  const Tensor v = random_uniform({1, 24, 1, 5}, DType::f64, 4, 0, 0.15);
  for (i64 n = 0; n < 24; ++n) {
    for (i64 c = 0; c < 5; ++c) {
      const i64 place = c % 2 == 0 ? 5 * n + c : n + c;  // some order of a group's six
      v.data<double>()[n * 5 + c] += 0.5 * double(place % 6) - 1.25;
    }
  }
  return v;
}

TEST_CASE("csp: sinkhorn tends to the permutation as its temperature falls") {
  if (fewest_on_device()) return;  // the case of eq. 9 runs the same kernels
  const Tensor v = samples_apart();
  double before = 1;
  for (const double temperature : {1.0, 0.3, 0.1, 0.03, 0.01}) {
    if (few_on_device() && temperature < 0.2) return;  // the CPU has shown the limit
    const int t = static_cast<int>(30 / temperature);
    const std::string options = fmt::format("group=6,shift=none,sinkhorn={}", t);
    const double now = apart(fmt::format("csp:{},temperature={}", options, temperature), v,
                             "csp:group=6,shift=none");
    CAPTURE(temperature);
    CHECK(now < before);
    before = now;
  }
  CHECK(before < 1e-3);
}

TEST_CASE("csp: a sharp plan is as exact in f32 as a soft one") {
  const Tensor v = normal({2, 16, 1, 4}, 7).to(DType::f32), wide = v.to(DType::f64);
  for (const char* temperature : {"1", "0.01", "0.0001"}) {
    CAPTURE(temperature);
    const std::string spec = fmt::format("csp:sinkhorn=3,group=8,temperature={}", temperature);
    const Run got = attended_run(spec, {v}), wanted = attended_run(spec, {wide});
    CHECK(got.outputs[0].dtype() == DType::f32);
    CHECK(relative_error(got.outputs[0], wanted.outputs[0]) <= tolerance::forward_f32);
    CHECK(relative_error(got.gradients[0], wanted.gradients[0]) <= tolerance::forward_f32);
  }
}

TEST_CASE("csp: sinkhorn keeps the sum of every group; a high temperature leaves its mean") {
  const Tensor v = normal({2, 20, 2, 3}, 5);
  const auto means = [](const Tensor& x) {
    return x.reshape({2, 4, 5, 6}).transpose(2, 3).clone();
  };
  const Tensor before = means(attended("csp:sort=0", {v}));
  const auto sums = [](const Tensor& x) {
    std::vector<double> list(48, 0);
    for (i64 i = 0; i < x.count(); ++i) list[std::size_t(i / 5)] += x.data<double>()[i];
    return Tensor::from(list, {48});
  };
  const Tensor after = means(attended("csp:sinkhorn=2,group=5,temperature=0.4", {v}));
  CHECK(relative_error(sums(after), sums(before)) <= tolerance::forward_f64);
  const Tensor flat = means(attended("csp:sinkhorn=1,group=5,temperature=1e6", {v}));
  const Tensor totals = sums(before);
  for (i64 i = 0; i < flat.count(); ++i) {
    CHECK(std::abs(flat.data<double>()[i] - totals.data<double>()[i / 5] / 5) <= 1e-5);
  }
}

TEST_CASE("csp: gradients through many steps of sinkhorn are those of its definition") {
  const Tensor v = normal({1, 14, 1, 3}, 6);
  for (const std::string spec :
       {"csp:sinkhorn=60,temperature=0.2,group=7", "csp:sinkhorn=300,temperature=0.03,group=7"}) {
    if (few_on_device()) return;  // every mechanism has fewer steps there
    CAPTURE(spec);
    const Run got = attended_run(spec, {v}), wanted = defined_run(spec, {v});
    CHECK(relative_error(got.outputs[0], wanted.outputs[0]) <= 1e-12);
    CHECK(relative_error(got.gradients[0], wanted.gradients[0]) <= 1e-10);
    if (few_here()) return;
  }
}

TEST_CASE("csp: an item under sinkhorn gives what it would give alone") {
  const Tensor v = normal({2, 13, 1, 4}, 7);
  const AttentionCall call = with_lengths({13, 7});
  const std::string spec = "csp:sinkhorn=3,group=5,temperature=0.5";
  const Run both = attended_run(spec, {v}, call);
  const Tensor alone = attended(spec, {v.slice(0, 1, 2).slice(1, 0, 7).clone()});
  check_close(both.outputs[0].slice(0, 1, 2).slice(1, 0, 7).clone(), alone);
  const Tensor rest = both.outputs[0].slice(0, 1, 2).slice(1, 7, 13).clone();
  CHECK(same_bits(rest, Tensor::zeros(rest.shape(), DType::f64)));
}

TEST_CASE("csp: what sinkhorn excludes is refused") {
  const Tensor v = normal({1, 6, 1, 2}, 8);
  const auto refused = [&](const std::string& spec, const char* part, AttentionCall call = {}) {
    CHECK_ERROR(attended(spec, {v}, call), part);
  };
  refused("csp:temperature=0.5", "csp: temperature=0.5 needs sinkhorn=t");
  refused("csp:sinkhorn=2,order=ascending", "csp: sinkhorn=2 tends to order=reference");
  refused("csp:sinkhorn=2,sort=0", "csp: sinkhorn=2 tends to order=reference");
  refused("csp:sinkhorn=2,preset=released", "csp: sinkhorn=2 tends to order=reference");
  refused("csp:sinkhorn=2,groups=2", "groups=2 takes no lengths", with_lengths({5}));
  AttentionCall given;
  given.given["src"] = Tensor::zeros({1, 6, 2}, DType::i64);
  refused("csp:sinkhorn=2", "src cannot be given; these can: shifts", given);
  CHECK_ERROR(AttentionSpec("csp:sinkhorn=-1"), "sinkhorn is a");
  CHECK_ERROR(AttentionSpec("csp:sinkhorn=1,temperature=0"), "temperature is a");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
