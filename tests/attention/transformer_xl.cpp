// Properties of Transformer-XL alone (mechanism page:
// ops/attention/transformer_xl/transformer_xl.h), and of the features of passes by distance that
// adaptive span does not use.
#include <cmath>

#include "ops/attention/engines/pairs/distance_attention.h"
#include "ops/views/views.h"
#include "tests/attention/run_attention.h"

namespace weft {
namespace {

struct Relative {
  QueryKeyValue in;
  Tensor w_r, u, v;

  Relative(i64 B, i64 N, i64 S, i64 H, i64 E, i64 M, i64 D)
      : in(B, N, S, H, E, M),
        w_r(normal({D, H, E}, 7)),
        u(normal({H, E}, 8)),
        v(normal({H, E}, 9)) {}
  std::vector<Tensor> list() const { return {in.q, in.k, in.v, w_r, u, v}; }
};

// The equations as loops: out, and the gradients of all inputs for the cotangent `dout`.
std::vector<Tensor> by_loops(const Relative& x, i64 clamp, const Tensor& dout) {
  const i64 B = x.in.q.size(0), N = x.in.q.size(1), H = x.in.q.size(2), E = x.in.q.size(3);
  const i64 S = x.in.k.size(1), M = x.in.v.size(3), D = x.w_r.size(0);
  std::vector<Tensor> results{Tensor::zeros({B, N, H, M}, DType::f64)};
  for (const Tensor& input : x.list()) results.push_back(Tensor::zeros(input.shape(), DType::f64));
  const auto at4 = [](const Tensor& t) { return t.view<double, 4>(); };
  const auto at2 = [](const Tensor& t) { return t.view<double, 2>(); };
  const auto q = at4(x.in.q), k = at4(x.in.k), v = at4(x.in.v), d = at4(dout);
  const auto out = at4(results[0]), dq = at4(results[1]), dk = at4(results[2]),
             dv = at4(results[3]);
  const auto w = x.w_r.view<double, 3>(), dw = results[4].view<double, 3>();
  const auto bias_u = at2(x.u), bias_v = at2(x.v), du = at2(results[5]), dbias_v = at2(results[6]);
  const double t = 1 / std::sqrt(double(E));
  const auto rho = [&](i64 delta, i64 c) {
    const double at = double(clamp == 0 ? delta : std::min(delta, clamp));
    const i64 half = D / 2;
    const double f = std::pow(10000.0, -2 * double(c % half) / double(D));
    return c < half ? std::sin(at * f) : std::cos(at * f);
  };
  for (i64 b = 0; b < B; ++b) {
    for (i64 h = 0; h < H; ++h) {
      for (i64 i = 0; i < N; ++i) {
        const i64 position = S - N + i;
        std::vector<double> a, g;
        std::vector<std::vector<double>> r;  // w_rᵀ ρ of each key
        double sum = 0, through = 0;
        for (i64 j = 0; j <= position; ++j) {
          r.emplace_back(std::size_t(E), 0.0);
          double score = 0, product = 0;
          for (i64 e = 0; e < E; ++e) {
            double& of_key = r.back()[std::size_t(e)];
            for (i64 c = 0; c < D; ++c) of_key += w(c, h, e) * rho(position - j, c);
            score += (q(b, i, h, e) + bias_u(h, e)) * k(b, j, h, e);
            score += (q(b, i, h, e) + bias_v(h, e)) * of_key;
          }
          for (i64 m = 0; m < M; ++m) product += d(b, i, h, m) * v(b, j, h, m);
          a.push_back(std::exp(t * score)), g.push_back(product);
          sum += a.back();
        }
        for (std::size_t j = 0; j < a.size(); ++j) through += a[j] / sum * g[j];
        for (i64 j = 0; j <= position; ++j) {
          const auto at = std::size_t(j);
          const double weight = a[at] / sum, ds = t * weight * (g[at] - through);
          for (i64 m = 0; m < M; ++m) {
            out(b, i, h, m) += weight * v(b, j, h, m);
            dv(b, j, h, m) += weight * d(b, i, h, m);
          }
          for (i64 e = 0; e < E; ++e) {
            const double of_key = r[at][std::size_t(e)];
            dq(b, i, h, e) += ds * (k(b, j, h, e) + of_key);
            dk(b, j, h, e) += ds * (q(b, i, h, e) + bias_u(h, e));
            du(h, e) += ds * k(b, j, h, e);
            dbias_v(h, e) += ds * of_key;
            for (i64 c = 0; c < D; ++c) {
              dw(c, h, e) += ds * (q(b, i, h, e) + bias_v(h, e)) * rho(position - j, c);
            }
          }
        }
      }
    }
  }
  return results;
}

// Outputs of positions begin … end − 1, with those before them as their memory.
Tensor segment(const Relative& x, i64 begin, i64 end) {
  return attended("transformer-xl",
                  {x.in.q.slice(1, begin, end), x.in.k.slice(1, 0, end), x.in.v.slice(1, 0, end),
                   x.w_r, x.u, x.v},
                  causal());
}

TEST_SUITE("attention") {

TEST_CASE("transformer-xl: it is the equations of the paper") {
  for (const auto& [N, S] : {std::pair<i64, i64>{9, 9}, {1, 7}, {67, 67}, {40, 105}, {3, 80}}) {
    for (const i64 clamp : {i64{0}, i64{5}}) {
      CAPTURE(N);
      CAPTURE(clamp);
      const Relative x(2, N, S, 3, 4, 3, 10);
      const Tensor dout = normal({2, N, 3, 3}, 5);
      const std::vector<Tensor> wanted = by_loops(x, clamp, dout);
      const std::string spec = "transformer-xl:clamp=" + std::to_string(clamp);
      const std::vector<Tensor> got = run_for(dout, mechanism_of(spec, causal()), x.list()).all();
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        CAPTURE(i);
        CHECK(relative_error(got[i], wanted[i]) < 1e-11);
      }
    }
  }
}

TEST_CASE(
    "transformer-xl: two segments, the second with the first as its memory, are one sequence") {
  const Relative x(2, 90, 90, 2, 8, 5, 16);
  const Tensor whole = segment(x, 0, 90);
  for (const i64 cut : {i64{1}, i64{33}, i64{64}, i64{89}}) {
    CAPTURE(cut);
    CHECK(relative_error(segment(x, 0, cut), whole.slice(1, 0, cut)) < 1e-13);
    CHECK(relative_error(segment(x, cut, 90), whole.slice(1, cut, 90)) < 1e-13);
  }
}

// The paper's shift: a score depends on the distance, not on the position.
TEST_CASE("transformer-xl: keys that come before all others move no score of the rest") {
  const Relative x(1, 20, 50, 2, 4, 3, 8);
  // Keys in front take weight, and do not change the ratios of the others' weights.
  Relative longer = x;
  longer.in.k = concatenate(std::vector<Variable>{normal({1, 13, 2, 4}, 6), x.in.k}, 1).value();
  // The weights of keys over that of key `from`.
  const auto weights = [](const Relative& of, i64 from) {
    std::vector<Tensor> list = of.list();
    list[2] = unit_values(1, of.in.k.size(1), 2);
    const Tensor a = attended("transformer-xl", list, causal());
    std::vector<double> ratios;
    for (i64 i = 0; i < 20; ++i) {
      for (i64 j = from + 1; j < from + 31; ++j) {
        const auto at = a.view<double, 4>();
        ratios.push_back(at(0, i, 1, j) / at(0, i, 1, from));
      }
    }
    return Tensor::from(ratios, {static_cast<i64>(ratios.size())});
  };
  CHECK(relative_error(weights(longer, 13), weights(x, 0)) < 1e-12);
}

TEST_CASE("transformer-xl: what does not fit is refused in one line") {
  const Relative odd(1, 4, 4, 2, 3, 3, 7), x(1, 4, 4, 2, 3, 3, 6);
  const auto run = [](const std::vector<Tensor>& inputs) {
    attended("transformer-xl", inputs, causal());
  };
  CHECK_THROWS_WITH(run(odd.list()), "transformer-xl: position_width must be even, got 7");
  std::vector<Tensor> more = x.list();
  more[0] = normal({1, 5, 2, 3}, 3);
  CHECK_THROWS_WITH(run(more), doctest::Contains("transformer-xl"));
  const Variable q = x.in.q, k = x.in.k, v = x.in.v;
  CHECK_THROWS_WITH(
      distance_attention({.name = "of a test", .most = 4}, q, k, v, {.bias = normal({2, 4}, 1)}),
      "of a test: a bias by distance needs a table");
}

// A table for each head, and a bias, with spans and dropout, windows shorter than the sequence, and
// `nearest` = 1.
TEST_CASE("distances: tables of heads and biases, against central differences") {
  for (const bool spans : {false, true}) {
    for (const i64 nearest : {i64{0}, i64{1}}) {
      CAPTURE(spans);
      const QueryKeyValue in(2, 11, 19, 2, 3, 2);
      const DistanceCall call{
          .dropout = 0.3, .random = {1, 2, 3}, .nearest = nearest, .ramp = 4, .most = 8};
      std::vector<Tensor> inputs{in.q, in.k, in.v, normal({2, 8, 3}, 4), normal({2, 8}, 5)};
      if (spans) inputs.push_back(Tensor::from(std::vector<double>{0.2, 0.61}, {2}));
      const Differentiable f = [=](std::span<const Variable> x) {
        return std::vector{
            distance_attention(call, x[0], x[1], x[2],
                               {.table = x[3], .bias = x[4], .spans = spans ? x[5] : Variable()})};
      };
      CHECK_GRADIENTS(f, inputs);
    }
  }
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
