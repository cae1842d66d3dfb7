// Properties of Transformer-XL alone (mechanism page:
// ops/attention/transformer_xl/transformer_xl.h), and of the features of passes by distance that
// adaptive span does not use.
#include <cmath>

#include "ops/attention/engines/pairs/distance_attention.h"
#include "ops/views/views.h"
#include "tests/attention/loops.h"

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

// The equations as loops.
loops::Function transformer_xl_by_loops(i64 clamp) {
  return [=](const std::vector<Tensor>& in) {
    const auto q = in[0].view<double, 4>(), k = in[1].view<double, 4>(),
               v = in[2].view<double, 4>();
    const auto w = in[3].view<double, 3>();
    const auto bias_u = in[4].view<double, 2>(), bias_v = in[5].view<double, 2>();
    const i64 B = q.size(0), N = q.size(1), H = q.size(2), E = q.size(3);
    const i64 S = k.size(1), M = v.size(3), D = w.size(0);
    const Tensor result = Tensor::zeros({B, N, H, M}, DType::f64);
    const Tensor of_distance = Tensor::zeros({S, H, E}, DType::f64);  // w_rᵀ ρ
    const auto out = result.view<double, 4>();
    const auto r = of_distance.view<double, 3>();
    const double t = 1 / std::sqrt(double(E));
    const auto rho = [&](i64 delta, i64 c) {
      const double at = double(clamp == 0 ? delta : std::min(delta, clamp));
      const i64 half = D / 2;
      const double f = std::pow(10000.0, -2 * double(c % half) / double(D));
      return c < half ? std::sin(at * f) : std::cos(at * f);
    };
    for (i64 delta = 0; delta < S; ++delta) {
      for (i64 c = 0; c < D; ++c) {
        const double wave = rho(delta, c);
        for (i64 h = 0; h < H; ++h) {
          for (i64 e = 0; e < E; ++e) r(delta, h, e) += w(c, h, e) * wave;
        }
      }
    }
    for (i64 b = 0; b < B; ++b) {
      for (i64 h = 0; h < H; ++h) {
        for (i64 i = 0; i < N; ++i) {
          const i64 position = S - N + i;
          loops::Row z;
          for (i64 j = 0; j <= position; ++j) {
            double score = 0;
            for (i64 e = 0; e < E; ++e) {
              score += (q(b, i, h, e) + bias_u(h, e)) * k(b, j, h, e);
              score += (q(b, i, h, e) + bias_v(h, e)) * r(position - j, h, e);
            }
            z.push_back(t * score);
          }
          const loops::Row a = loops::softmax(z);
          for (i64 j = 0; j <= position; ++j) {
            for (i64 m = 0; m < M; ++m) out(b, i, h, m) += a[std::size_t(j)] * v(b, j, h, m);
          }
        }
      }
    }
    return result;
  };
}

// Outputs of positions begin … end − 1, with those before them as their memory.
Tensor segment(const Relative& x, i64 begin, i64 end) {
  return attended("transformer-xl",
                  {x.in.q.slice(1, begin, end), x.in.k.slice(1, 0, end), x.in.v.slice(1, 0, end),
                   x.w_r, x.u, x.v},
                  causal());
}

TEST_SUITE("attention") {

TEST_CASE("transformer-xl: it is the equations of the paper, and its gradients are their slopes") {
  for (const auto& [N, S] : {std::pair<i64, i64>{9, 9}, {1, 7}, {67, 67}, {40, 105}, {3, 80}}) {
    for (const i64 clamp : {i64{0}, i64{5}}) {
      CAPTURE(N);
      CAPTURE(clamp);
      const Relative x(2, N, S, 3, 4, 3, 10);
      loops::check("transformer-xl:clamp=" + std::to_string(clamp), x.list(), causal(),
                   transformer_xl_by_loops(clamp));
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
