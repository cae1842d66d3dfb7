// Properties of agglomerative attention alone (its page:
// ops/attention/agglomerative/agglomerative.h).
#include <algorithm>
#include <cmath>

#include "ops/attention/agglomerative/agglomerative.h"

#include "autograd/tape.h"
#include "tests/attention/run_attention.h"
#include "tests/threads.h"

namespace weft {
namespace {

struct AgglomerativeInputs {
  Tensor zq, zk, y;
  AgglomerativeInputs(i64 B, i64 N, i64 S, i64 H, i64 M, DType type = DType::f64)
      : zq(random_normal({B, N, H}, DType::f64, 1).to(type)),
        zk(random_normal({B, S, H}, DType::f64, 2).to(type)),
        y(random_normal({B, S, H, M}, DType::f64, 3).to(type)) {}
  std::vector<Tensor> list() const { return {zq, zk, y}; }
};

// The same mathematics, position by position, in long double. One batch item.
struct Exact {
  i64 N, H, M;
  std::vector<long double> cq, ck, mass, sums;  // [N, H] and, sums, [N, H, M]
  std::vector<double> out, dzq, dzk, dy;

  Exact(const AgglomerativeInputs& in, const Tensor& dout)
      : N(in.zq.size(1)),
        H(in.zq.size(2)),
        M(in.y.size(3)),
        cq(classes(in.zq)),
        ck(classes(in.zk)) {
    const std::vector<double> y = in.y.to(DType::f64).to_vector<double>();
    const std::vector<double> gradient = dout.to(DType::f64).to_vector<double>();
    std::vector<long double> S(at(1)), U(at(1) * std::size_t(M));
    for (std::size_t i = 0; i < at(N); ++i) {
      mass.push_back(S[i % at(1)] += ck[i]);
      for (std::size_t m = 0; m < std::size_t(M); ++m) {
        sums.push_back(U[i % at(1) * std::size_t(M) + m] += ck[i] * y[i * std::size_t(M) + m]);
        out.push_back(double(cq[i] * sums.back() / clip(S[i % at(1)])));
      }
    }
    backward(y, gradient);
  }

  std::size_t at(i64 i) const { return std::size_t(i * H); }
  static long double clip(long double S) { return std::max(S, 1e-3L); }

  std::vector<long double> classes(const Tensor& z) const {
    std::vector<long double> c;
    for (const double x : z.to(DType::f64).to_vector<double>())
      c.push_back(std::exp((long double)x));
    for (std::size_t i = 0; i < c.size(); i += at(1)) {
      long double sum = 0;
      for (std::size_t k = 0; k < at(1); ++k) sum += c[i + k];
      for (std::size_t k = 0; k < at(1); ++k) c[i + k] /= sum;
    }
    return c;
  }

  // dz = c (dc − Σ c dc), row by row.
  std::vector<double> through_softmax(const std::vector<long double>& c,
                                      const std::vector<long double>& dc) const {
    std::vector<double> dz;
    for (std::size_t i = 0; i < c.size(); ++i) {
      long double inner = 0;
      const std::size_t row = i / at(1) * at(1);
      for (std::size_t k = 0; k < at(1); ++k) inner += c[row + k] * dc[row + k];
      dz.push_back(double(c[i] * (dc[i] - inner)));
    }
    return dz;
  }

  Run run() const {
    const Shape classes{1, N, H}, values{1, N, H, M};
    return {{Tensor::from(out, values)},
            {Tensor::from(dzq, classes), Tensor::from(dzk, classes), Tensor::from(dy, values)}};
  }

  void backward(const std::vector<double>& y, const std::vector<double>& gradient) {
    const auto width = std::size_t(M);
    std::vector<long double> dcq(at(N)), dck(at(N)), g(at(1)), G(at(1) * width);
    dy.assign(at(N) * width, 0);
    for (std::size_t i = at(N); i-- > 0;) {
      const std::size_t k = i % at(1);
      const long double n = clip(mass[i]);
      for (std::size_t m = 0; m < width; ++m) {
        const long double dp = gradient[i * width + m];
        dcq[i] += dp * sums[i * width + m] / n;
        G[k * width + m] += cq[i] / n * dp;
      }
      if (mass[i] >= 1e-3L) g[k] -= cq[i] / n * dcq[i];
      dck[i] = g[k];
      for (std::size_t m = 0; m < width; ++m) {
        dck[i] += y[i * width + m] * G[k * width + m];
        dy[i * width + m] = double(ck[i] * G[k * width + m]);
      }
    }
    dzq = through_softmax(cq, dcq);
    dzk = through_softmax(ck, dck);
  }
};

TEST_SUITE("attention") {

TEST_CASE("agglomerative: the last causal output is that without the mask") {
  for (const i64 N : {1, 7, 128, 129, 300}) {
    const AgglomerativeInputs in(2, N, N, 3, 5);
    check_close(attended("agglomerative", in.list(), causal()).slice(1, N - 1, N),
                attended("agglomerative", in.list()).slice(1, N - 1, N));
  }
}

TEST_CASE("agglomerative: one query over all references is the last causal one") {
  const AgglomerativeInputs in(2, 150, 150, 3, 5);
  check_close(attended("agglomerative", {in.zq.slice(1, 149, 150), in.zk, in.y}),
              attended("agglomerative", in.list(), causal()).slice(1, 149, 150));
}

TEST_CASE("agglomerative: the first causal output is the first value by the query's classes") {
  const AgglomerativeInputs in(1, 9, 9, 3, 5);
  const Exact exact(in, Tensor::zeros({1, 9, 3, 5}, DType::f64));
  const std::vector<double> out =
      attended("agglomerative", in.list(), causal()).to_vector<double>();
  const std::vector<double> y = in.y.to_vector<double>();
  for (std::size_t j = 0; j < 15; ++j) {
    CHECK(out[j] ==
          doctest::Approx(double(exact.cq[j / 5]) * y[j]).epsilon(tolerance::forward_f64));
  }
}

TEST_CASE("agglomerative: with one class it is the running mean") {
  const i64 N = 200, M = 6;
  const AgglomerativeInputs in(1, N, N, 1, M);
  const std::vector<double> y = in.y.to_vector<double>();
  const Tensor out = attended("agglomerative", in.list(), causal());
  std::vector<double> sum(std::size_t(M), 0.0), wanted;
  for (i64 i = 0; i < N; ++i) {
    for (std::size_t m = 0; m < std::size_t(M); ++m) {
      sum[m] += y[std::size_t(i * M) + m];
      wanted.push_back(sum[m] / double(i + 1));
    }
  }
  CHECK(relative_error(out, Tensor::from(wanted, out.shape())) <= tolerance::forward_f64);
}

TEST_CASE("agglomerative: what a class gives lies between its smallest and largest value") {
  const i64 N = 150, H = 3, M = 4;
  const AgglomerativeInputs in(1, N, N, H, M);
  const Exact exact(in, Tensor::zeros({1, N, H, M}, DType::f64));
  const View<double, 4> y = in.y.view<double, 4>();
  const Tensor out = attended("agglomerative", in.list(), causal());
  for (i64 k = 0; k < H; ++k) {
    for (i64 m = 0; m < M; ++m) {
      double least = y(0, 0, k, m), most = least;
      for (i64 i = 0; i < N; ++i) {
        least = std::min(least, y(0, i, k, m));
        most = std::max(most, y(0, i, k, m));
        REQUIRE(exact.mass[std::size_t(i * H + k)] >= 1e-3L);
        const double a =
            out.view<double, 4>()(0, i, k, m) / double(exact.cq[std::size_t(i * H + k)]);
        CHECK(a >= least - tolerance::forward_f64 * std::abs(least));
        CHECK(a <= most + tolerance::forward_f64 * std::abs(most));
      }
    }
  }
}

TEST_CASE("agglomerative: values twice as large give outputs twice as large, to the bit") {
  const AgglomerativeInputs in(2, 140, 140, 3, 5, DType::f32);
  const Tensor doubled = in.y.clone();
  for (i64 i = 0; i < doubled.count(); ++i) doubled.data<float>()[i] *= 2;
  for (const AttentionCall& call : {AttentionCall{}, causal()}) {
    Tensor wanted = attended("agglomerative", in.list(), call);
    for (i64 i = 0; i < wanted.count(); ++i) wanted.data<float>()[i] *= 2;
    CHECK(same_bits(attended("agglomerative", {in.zq, in.zk, doubled}, call), wanted));
  }
}

// a_i = a_{i−1} + (ck_i / S_i) (y_i − a_{i−1}) where nothing is clipped.
TEST_CASE("agglomerative: the streaming form") {
  const i64 N = 150, H = 2, M = 3;
  const AgglomerativeInputs in(1, N, N, H, M);
  const Exact exact(in, Tensor::zeros({1, N, H, M}, DType::f64));
  const std::vector<double> y = in.y.to_vector<double>();
  const Tensor out = attended("agglomerative", in.list(), causal());
  std::vector<long double> a(std::size_t(H * M));
  std::vector<double> wanted;
  for (std::size_t i = 0; i < std::size_t(N); ++i) {
    for (std::size_t j = 0; j < std::size_t(H * M); ++j) {
      const std::size_t class_of = i * std::size_t(H) + j / std::size_t(M);
      a[j] += exact.ck[class_of] / exact.mass[class_of] * (y[i * std::size_t(H * M) + j] - a[j]);
      wanted.push_back(double(exact.cq[class_of] * a[j]));
    }
  }
  CHECK(relative_error(out, Tensor::from(wanted, out.shape())) <= tolerance::forward_f64);
}

// Logits for which class 0 is nearly empty: its mass exceeds 10⁻³ only within the sequence.
AgglomerativeInputs nearly_empty(i64 N) {
  AgglomerativeInputs in(1, N, N, 3, 4);
  for (i64 t = 0; t < N; ++t) in.zk.view<double, 3>()(0, t, 0) -= 9;
  return in;
}

TEST_CASE("agglomerative: a class of little mass is clipped") {
  const i64 N = 20;
  const AgglomerativeInputs in = nearly_empty(N);
  const Tensor dout = random_normal({1, N, 3, 4}, DType::f64, 6);
  const Exact exact(in, dout);
  REQUIRE(exact.mass.front() < 0.9e-3L);
  REQUIRE(exact.mass[std::size_t(3 * (N - 1))] > 1.1e-3L);
  check_close(run_for(dout, mechanism_of("agglomerative", causal()), in.list()), exact.run());
  CHECK_GRADIENTS(mechanism_of("agglomerative", causal()), in.list());
  CHECK_GRADIENTS(mechanism_of("agglomerative"), in.list());
}

TEST_CASE("agglomerative: many classes, and wide ones") {
  const i64 N = 140;
  for (const auto& [H, M] : {std::pair{40, 3}, {3, 50}, {1, 128}, {2, 300}}) {
    const AgglomerativeInputs in(1, N, N, H, M);
    const Tensor dout = random_normal({1, N, H, M}, DType::f64, 6);
    check_close(run_for(dout, mechanism_of("agglomerative", causal()), in.list()),
                Exact(in, dout).run());
  }
}

// One position: out = cq y for any ck, unless clipped: then it is cq ck y / 10⁻³.
TEST_CASE("agglomerative: the mass takes a gradient unless it is clipped") {
  AgglomerativeInputs in(1, 1, 1, 2, 3);
  for (const bool clipped : {false, true}) {
    in.zk.view<double, 3>()(0, 0, 0) = clipped ? -9 : 0;
    in.zk.view<double, 3>()(0, 0, 1) = 0;
    const Run all = attended_run("agglomerative", in.list(), causal());
    const double dzk = std::abs(all.gradients[1].to_vector<double>()[0]);
    const double ck = clipped ? std::exp(-9.0) / (1 + std::exp(-9.0)) : 0.5;
    const double share = clipped ? ck / 1e-3 : 1;
    const double cq = 1 / (1 + std::exp(in.zq.data<double>()[1] - in.zq.data<double>()[0]));
    CHECK(all.outputs[0].to_vector<double>()[0] ==
          doctest::Approx(cq * share * in.y.data<double>()[0]).epsilon(tolerance::forward_f64));
    if (clipped) {
      CHECK(dzk > 1e-3);
    } else {
      CHECK(dzk < 1e-15);
    }
  }
}

TEST_CASE("agglomerative: f32 at 65,536 positions is as good as f32 can be") {
  const i64 N = 65536, H = 3, M = 5;
  const AgglomerativeInputs in(1, N, N, H, M, DType::f32);
  const Tensor dout = random_normal({1, N, H, M}, DType::f32, 4);
  const Run got = run_for(dout, mechanism_of("agglomerative", causal()), in.list());
  const Run wanted = Exact(in, dout).run();
  check_close(got, wanted, tolerance::forward_f32, tolerance::forward_f32);
  // The late outputs are small compared with the first: their own relative error must be small.
  const auto late = [&](const Run& run) { return run.outputs[0].slice(1, N - 100, N); };
  CHECK(relative_error(late(got), late(wanted)) <= tolerance::forward_f32);
}

TEST_CASE("agglomerative: long sequences give the same bits for any number of threads") {
  const AgglomerativeInputs in(1, 6000, 6000, 3, 5, DType::f32);
  for (const AttentionCall& call : {AttentionCall{}, causal()}) {
    const ThreadsOf one(1);
    const Run first = attended_run("agglomerative", in.list(), call);
    for (const int team : {2, 3}) {
      const ThreadsOf scope(team);
      check_same_bits(attended_run("agglomerative", in.list(), call), first);
    }
  }
}

TEST_CASE("agglomerative: over one sequence the gradients lie side by side") {
  const AgglomerativeInputs in(2, 140, 140, 3, 5);
  std::vector<Variable> leaves;
  for (const Tensor& input : on_device(in.list())) leaves.push_back(Variable::leaf(input));
  Tape tape;
  const Variable out = attend(AttentionSpec("agglomerative"), causal(), leaves).out;
  tape.backward(out, random_normal({2, 140, 3, 5}, DType::f64, 4).to(tested_device()));
  const Tensor flat[] = {leaves[0].gradient(), leaves[1].gradient(),
                         leaves[2].gradient().reshape({2, 140, 15})};
  const Tensor joined = Tensor::joined(flat, 2);
  REQUIRE(joined.defined());
  CHECK(joined.shape() == Shape{2, 140, 21});
}

TEST_CASE("agglomerative: the state of decoding does not grow") {
  const AttentionSpec spec("agglomerative");
  const AgglomerativeInputs in(2, 30, 30, 3, 5);
  const auto state =
      spec.mechanism().decode(spec, {.B = 2, .N = 30, .S = 30, .H = 3, .M = 5}, DType::f64, 1);
  for (i64 i = 0; i < 30; ++i) {
    CHECK(state->bytes() == 2 * 3 * (1 + 5) * 8);
    const auto at = [&](const Tensor& x) { return x.slice(1, i, i + 1).to(tested_device()); };
    state->step(std::vector{at(in.zq), at(in.zk), at(in.y)});
  }
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
