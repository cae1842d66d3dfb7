// Properties of adaptive span alone (mechanism page: ops/attention/adaptive_span/adaptive_span.h),
// and for the passes by distance that it is made of (ops/attention/engines/pairs/distances.h).
#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/attention/engines/pairs/distance_attention.h"
#include "tests/attention/run_attention.h"

namespace weft {
namespace {

struct Spanned {
  QueryKeyValue in;
  Tensor span, key_pe;

  Spanned(i64 B, i64 N, i64 S, std::vector<double> spans, i64 L, i64 E = 5, i64 M = 3)
      : in(B, N, S, static_cast<i64>(spans.size()), E, M),
        span(Tensor::from(spans, {static_cast<i64>(spans.size())})),
        key_pe(normal({L, E}, 7)) {}
  std::vector<Tensor> list() const { return {in.q, in.k, in.v, span, key_pe}; }
};

// The equations as loops, the softmax over all of max_span as in the paper: out, and the gradients
// of q, k, v, span and key_pe for the cotangent `dout`.
std::vector<Tensor> by_loops(const Spanned& x, i64 L, double R, const Tensor& dout) {
  const i64 B = x.in.q.size(0), N = x.in.q.size(1), H = x.in.q.size(2), E = x.in.q.size(3);
  const i64 S = x.in.k.size(1), M = x.in.v.size(3);
  std::vector<Tensor> results{Tensor::zeros({B, N, H, M}, DType::f64)};
  for (const Tensor& input : x.list()) results.push_back(Tensor::zeros(input.shape(), DType::f64));
  const auto at4 = [](const Tensor& t) { return t.view<double, 4>(); };
  const auto q = at4(x.in.q), k = at4(x.in.k), v = at4(x.in.v), d = at4(dout);
  const auto out = at4(results[0]), dq = at4(results[1]), dk = at4(results[2]),
             dv = at4(results[3]);
  const auto z = x.span.view<double, 1>(), dz = results[4].view<double, 1>();
  const auto p = x.key_pe.view<double, 2>(), dp = results[5].view<double, 2>();
  const double t = 1 / std::sqrt(double(E));
  for (i64 b = 0; b < B; ++b) {
    for (i64 h = 0; h < H; ++h) {
      for (i64 i = 0; i < N; ++i) {
        const i64 position = S - N + i, keys = std::min(L, position);
        std::vector<double> a, m, g;
        double sum = 0, weighted = 0, all = 0;
        for (i64 r = 0; r < keys; ++r) {  // δ = r + 1
          double score = 0, product = 0;
          for (i64 e = 0; e < E; ++e) {
            score += t * q(b, i, h, e) * (k(b, position - 1 - r, h, e) + p(r, e));
          }
          for (i64 c = 0; c < M; ++c) product += d(b, i, h, c) * v(b, position - 1 - r, h, c);
          a.push_back(std::exp(score)), g.push_back(product);
          m.push_back(std::clamp((z(h) * double(L) - double(r)) / R + 1, 0.0, 1.0));
          sum += a.back();
        }
        for (double& weight : a) weight /= sum;
        for (std::size_t r = 0; r < a.size(); ++r) weighted += a[r] * m[r];
        const double divisor = weighted + 1e-8;
        double through = 0;  // the inner sum Σ w g
        for (std::size_t r = 0; r < a.size(); ++r) through += a[r] * m[r] / divisor * g[r];
        std::vector<double> da;
        for (std::size_t r = 0; r < a.size(); ++r) {
          da.push_back(m[r] * (g[r] - through) / divisor);
          all += a[r] * da[r];
          if (m[r] > 0 && m[r] < 1) dz(h) += double(L) / R * a[r] * (g[r] - through) / divisor;
        }
        for (i64 r = 0; r < keys; ++r) {
          const auto at = static_cast<std::size_t>(r);
          const i64 j = position - 1 - r;
          const double weight = a[at] * m[at] / divisor, ds = t * a[at] * (da[at] - all);
          for (i64 c = 0; c < M; ++c) {
            out(b, i, h, c) += weight * v(b, j, h, c);
            dv(b, j, h, c) += weight * d(b, i, h, c);
          }
          for (i64 e = 0; e < E; ++e) {
            dq(b, i, h, e) += ds * (k(b, j, h, e) + p(r, e));
            dk(b, j, h, e) += ds * q(b, i, h, e);
            dp(r, e) += ds * q(b, i, h, e);
          }
        }
      }
    }
  }
  return results;
}

// The passes by distance as a function of q, k, v, and, if they are used, of a table and of spans.
Differentiable by_distance(const DistanceCall& call, bool table, bool spans) {
  return [=](std::span<const Variable> x) {
    return std::vector{distance_attention(
        call, x[0], x[1], x[2],
        {.table = table ? x[3] : Variable(), .spans = spans ? x[table ? 4 : 3] : Variable()})};
  };
}

TEST_SUITE("attention") {

// A softmax over all keys differs from one over the keys with a factor by 10⁻⁸ of the others'
// weights.
TEST_CASE("adaptive-span: it is the equations of the paper") {
  for (const auto& [N, S] : {std::pair<i64, i64>{9, 9}, {1, 7}, {83, 83}, {70, 135}, {3, 200}}) {
    for (const auto& [L, R] : {std::pair<i64, i64>{2, 1}, {40, 7}, {100, 32}, {150, 400}}) {
      CAPTURE(N);
      CAPTURE(L);
      const Spanned x(2, N, S, {0.03, 0.432, 1}, L);
      const Tensor dout = normal({2, N, 3, 3}, 5);
      const std::vector<Tensor> wanted = by_loops(x, L, double(R), dout);
      const std::string spec = "adaptive-span:ramp=" + std::to_string(R);
      const std::vector<Tensor> got = run_for(dout, mechanism_of(spec, causal()), x.list()).all();
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        CAPTURE(i);
        CHECK(relative_error(got[i], wanted[i]) < 1e-6);
      }
    }
  }
}

TEST_CASE("adaptive-span: kernel and definition, with key_pe, lengths, dropout, and keys before") {
  const i64 L = 90;
  for (const auto& [N, S] : {std::pair<i64, i64>{75, 75}, {40, 150}}) {
    for (const bool tight : {false, true}) {
      const Spanned x(3, N, S, {0, 0.31, 0.9}, L, tight ? 8 : 35, tight ? 40 : 7);
      AttentionCall call = causal();
      for (const double rate : {0.0, 0.4}) {
        CAPTURE(N);
        CAPTURE(rate);
        call.dropout = rate;
        call.random = {1, 2, 3};
        if (N == S) call.lengths = lengths_of({75, 21, 0});
        const std::string spec = tight ? "adaptive-span:ramp=5" : "adaptive-span";
        check_close(attended_run(spec, x.list(), call), defined_run(spec, x.list(), call));
      }
    }
  }
}

TEST_CASE("adaptive-span: gradients against central differences, inside the ramp") {
  // No span makes a factor 0 or 1.
  const Spanned x(1, 6, 9, {0.03, 0.36}, 6, 2, 3);
  CHECK_GRADIENTS(mechanism_of("adaptive-span:ramp=3", causal()), x.list(), 3, 1e-6, 60);
  const Run run = attended_run("adaptive-span:ramp=3", x.list(), causal());
  for (const double g : run.gradients[3].to_vector<double>()) CHECK(g != 0);
}

TEST_CASE("adaptive-span: at z = 1 it is a windowed softmax, whatever the ramp") {
  const i64 N = 150, L = 70;
  const Spanned x(1, N, N, {1, 1}, L);
  // The keys before the query, without its own: local sees the same keys one position later.
  std::vector<Tensor> moved = x.in.list();
  for (const std::size_t i : {1, 2}) {
    moved[i] = Tensor::zeros(x.in.list()[i].shape(), DType::f64);
    moved[i].slice(1, 1, N).copy_from(x.in.list()[i].slice(1, 0, N - 1));
  }
  const Tensor wanted = attended("local:context=" + std::to_string(2 * (L - 1)), moved, causal());
  for (const char* ramp : {"1", "500"}) {
    const std::vector<Tensor> inputs{x.in.q, x.in.k, x.in.v, x.span};
    const Tensor got =
        attended("adaptive-span:max_span=70,ramp=" + std::string(ramp), inputs, causal());
    // Early queries of local see positions before the sequence: zeros.
    CHECK(relative_error(got.slice(1, L, N), wanted.slice(1, L, N)) < 1e-7);
    const Run run =
        attended_run("adaptive-span:max_span=70,ramp=" + std::string(ramp), inputs, causal());
    for (const double g : run.gradients[3].to_vector<double>()) CHECK(g == 0);
  }
}

TEST_CASE("adaptive-span: weights sum to 1 where there is a key, and are 0 out of reach") {
  const i64 N = 80, L = 64;
  Spanned x(1, N, N, {0, 0.3}, L, 4, N);
  x.in.v = unit_values(1, N, 2);
  const Tensor weights = attended("adaptive-span:ramp=6", x.list(), causal());
  const auto w = weights.view<const double, 4>();
  for (i64 h = 0; h < 2; ++h) {
    const double reach = (h == 0 ? 0 : 0.3 * double(L)) + 6;
    for (i64 i = 0; i < N; ++i) {
      double sum = 0;
      for (i64 j = 0; j < N; ++j) {
        sum += w(0, i, h, j);
        const bool seen = j < i && double(i - j - 1) < reach;
        CHECK((w(0, i, h, j) != 0) == seen);
      }
      CHECK(sum == doctest::Approx(i == 0 ? 0 : 1).epsilon(1e-6));
    }
  }
}

TEST_CASE("adaptive-span: keys behind the span of a head change nothing, to the bit") {
  const i64 N = 200, L = 120;
  const Spanned x(1, N, N, {0.1, 0.6}, L);
  const Run run = attended_run("adaptive-span:ramp=8", x.list(), causal());
  std::vector<Tensor> other = x.list();
  for (const std::size_t i : {1, 2}) {
    other[i] = other[i].clone();
    other[i].slice(1, 0, 100).slice(2, 0, 1).fill(77);  // of the first head
  }
  const Run changed = attended_run("adaptive-span:ramp=8", other, causal());
  const i64 free = 100 + 20 + 1;  // reach 20, and keys of one tile in eights
  CHECK(
      same_bits(run.outputs[0].slice(1, free + 64, N), changed.outputs[0].slice(1, free + 64, N)));
  CHECK(relative_error(run.outputs[0].slice(1, free, N), changed.outputs[0].slice(1, free, N)) <
        1e-12);
  CHECK(same_bits(run.outputs[0].slice(2, 1, 2), changed.outputs[0].slice(2, 1, 2)));
}

TEST_CASE("adaptive-span: the penalty is that of the mean span, once for all depths") {
  const Spanned x(1, 4, 4, {0.25, 0.5, 0}, 200);
  std::vector<Variable> inputs;
  for (const Tensor& input : on_device(x.list())) inputs.push_back(Variable::leaf(input));
  AttentionCall call = causal();
  const Variable penalty = attend(AttentionSpec("adaptive-span:penalty=0.5"), call, inputs).penalty;
  CHECK(penalty.value().item() == doctest::Approx(0.5 * 200 * 0.25));
  {
    Tape tape;
    tape.backward(attend(AttentionSpec("adaptive-span:penalty=0.5"), call, inputs).penalty);
    for (const double g : inputs[3].gradient().to(Device{}).to_vector<double>()) {
      CHECK(g == doctest::Approx(0.5 * 200 / 3));
    }
  }
  call.depth = 1;
  CHECK_FALSE(attend(AttentionSpec("adaptive-span"), call, inputs).penalty.defined());
  CHECK_FALSE(attend(AttentionSpec("adaptive-span:penalty=0"), causal(), inputs).penalty.defined());
}

TEST_CASE("adaptive-span: two segments with what came before are one long forward") {
  const Spanned x(2, 130, 130, {0.2, 0.7}, 60);
  const Tensor whole = attended("adaptive-span:ramp=9", x.list(), causal());
  std::vector<Tensor> second = x.list();
  second[0] = second[0].slice(1, 90, 130);
  check_close(attended("adaptive-span:ramp=9", second, causal()), whole.slice(1, 90, 130));
  second[1] = second[1].slice(1, 20, 130), second[2] = second[2].slice(1, 20, 130);  // L before 90
  check_close(attended("adaptive-span:ramp=9", second, causal()), whole.slice(1, 90, 130));
}

TEST_CASE(
    "adaptive-span: decoding with key_pe, and with room for fewer positions than may be seen") {
  const Spanned x(2, 100, 100, {0.2, 0.9}, 20, 4, 3);
  const Tensor whole = attended("adaptive-span:ramp=4", x.list(), causal());
  const AttentionSpec spec("adaptive-span:ramp=4,max_span=20");
  const AttentionSizes sizes{.B = 2, .H = 2, .E = 4, .M = 3};
  const std::vector<Tensor> moved = on_device(x.list());
  const auto step = [&](DecodingState& state, i64 begin, i64 end) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      inputs.push_back(i < 3 ? moved[i].slice(1, begin, end) : moved[i]);
    }
    return state.step(inputs).to(Device{});
  };
  for (const i64 capacity : {100, 21, 9}) {
    CAPTURE(capacity);
    // With a cache of 9 positions a query sees 8 before it.
    Tensor wanted = whole;
    if (capacity == 9) {
      wanted = Tensor::empty(whole.shape(), DType::f64);
      for (i64 i = 0; i < 100; ++i) {
        std::vector<Tensor> one = x.list();
        const i64 first = std::max<i64>(i - 8, 0);
        one[0] = one[0].slice(1, i, i + 1);
        one[1] = one[1].slice(1, first, i + 1), one[2] = one[2].slice(1, first, i + 1);
        wanted.slice(1, i, i + 1).copy_from(attended("adaptive-span:ramp=4", one, causal()));
      }
    }
    for (const std::vector<i64>& ends : {std::vector<i64>{}, {7}, {50, 60, 100}}) {
      const auto state = spec.mechanism().decode(spec, sizes, DType::f64, capacity);
      std::size_t part = 0;
      for (i64 begin = 0; begin < 100;) {
        const i64 end = part < ends.size() ? ends[part++] : begin + 1;
        check_close(step(*state, begin, end), wanted.slice(1, begin, end));
        begin = end;
      }
      CHECK(state->bytes() == 2 * 2 * std::min<i64>(capacity, 21) * 2 * 7 * 8);
    }
  }
}

TEST_CASE("adaptive-span: NaN in a span reaches the head's outputs, and no other's") {
  Spanned x(1, 70, 70, {std::nan(""), 0.4}, 30);
  const Tensor out = attended("adaptive-span:ramp=4", x.list(), causal());
  for (const double o : out.slice(2, 0, 1).slice(1, 1, 70).packed().to_vector<double>()) {
    CHECK(std::isnan(o));
  }
  for (const double o : out.slice(2, 1, 2).packed().to_vector<double>()) CHECK(std::isfinite(o));
}

TEST_CASE("distances: without spans and from its own position on it is causal full attention") {
  const QueryKeyValue in(2, 150, 150, 2, 6, 9);
  const DistanceCall call{.temperature = 0.3, .nearest = 0, .most = 150};
  const Run wanted = attended_run("full:temperature=0.3", in.list(), causal());
  check_close(run(by_distance(call, false, false), in.list()), wanted);
  // The rows of distances as a bias: τ q · r, here with a q whose last element is 1.
  const Tensor q = in.q.clone(), table = Tensor::zeros({150, 6}, DType::f64);
  q.slice(3, 5, 6).fill(1);
  table.slice(1, 5, 6).copy_from(normal({150, 1}, 4));
  const Tensor bias = Tensor::zeros({1, 1, 150, 150}, DType::f64);
  for (i64 i = 0; i < 150; ++i) {
    for (i64 j = 0; j <= i; ++j) {
      bias.view<double, 4>()(0, 0, i, j) = 0.3 * table.view<const double, 2>()(i - j, 5);
    }
  }
  const Run biased = attended_run("full:temperature=0.3", {q, in.k, in.v, bias}, causal());
  const Run got = run(by_distance(call, true, false), {q, in.k, in.v, table});
  check_close(got.outputs[0], biased.outputs[0]);
  for (const std::size_t i : {1, 2}) {
    CHECK(relative_error(got.gradients[i], biased.gradients[i]) <= tolerance::backward_f64);
  }
  const Tensor dtable = Tensor::zeros({150}, DType::f64);  // of its last column, from dbias
  for (i64 i = 0; i < 150; ++i) {
    for (i64 j = 0; j <= i; ++j) {
      dtable.view<double, 1>()(i - j) +=
          0.3 * biased.gradients[3].view<const double, 4>()(0, 0, i, j);
    }
  }
  CHECK(relative_error(got.gradients[3].slice(1, 5, 6).packed().reshape({150}), dtable) <=
        tolerance::backward_f64);
}

TEST_CASE("adaptive-span: what it refuses") {
  const Spanned x(1, 6, 6, {0.2, 0.4}, 8);
  CHECK_ERROR(attended("adaptive-span", x.list()), "adaptive-span: has only a causal form");
  CHECK_ERROR(attended("adaptive-span:max_span=9", x.list(), causal()),
              "adaptive-span: key_pe is [max_span, E] with max_span = 8, but the option says "
              "max_span=9");
  CHECK_ERROR(attended("adaptive-span:ramp=0", x.list(), causal()),
              "attention adaptive-span: ramp is a number in [1, 16777216], got '0'");
  CHECK_ERROR(attended("adaptive-span", x.in.list(), causal()),
              "adaptive-span: the input span is missing");
  std::vector<Tensor> fewer = x.list();
  fewer[1] = fewer[1].slice(1, 0, 5), fewer[2] = fewer[2].slice(1, 0, 5);
  CHECK_ERROR(
      attended("adaptive-span", fewer, causal()),
      "adaptive-span: wanted as many keys as queries or more, the last of them those of the "
      "queries, got N = 6 and S = 5");
  std::vector<Tensor> more = x.list();
  more[0] = more[0].slice(1, 0, 4);
  AttentionCall cut = causal();
  cut.lengths = lengths_of({3});
  CHECK_ERROR(attended("adaptive-span", more, cut),
              "adaptive-span: takes lengths where N = S, got N = 4 and S = 6");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
