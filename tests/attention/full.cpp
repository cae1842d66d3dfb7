// Properties of full attention alone (mechanism page: ops/attention/full/full.h).
#include <cmath>
#include <limits>

#include "tests/attention/run_attention.h"
#include "tests/threads.h"

namespace weft {
namespace {

TEST_SUITE("attention") {

TEST_CASE("full: the first causal output is the first value") {
  const QueryKeyValue in(2, 70, 70, 3, 4, 5);
  check_close(attended("full", in.list(), causal()).slice(1, 0, 1), in.v.slice(1, 0, 1));
}

TEST_CASE("full: one key gives its value to every query") {
  const QueryKeyValue in(2, 70, 1, 3, 4, 5);
  check_close(attended("full", in.list()), in.v.expand({2, 70, 3, 5}).clone());
}

TEST_CASE("full: the last causal output is that without the mask") {
  const QueryKeyValue in(2, 131, 131, 3, 4, 5);
  check_close(attended("full", in.list(), causal()).slice(1, 130, 131),
              attended("full", in.list()).slice(1, 130, 131));
}

TEST_CASE("full: two keys by hand") {
  const std::vector<double> q{1}, k{0.5, -1}, v{3, 7};
  const double a = 1 / (1 + std::exp(-2.0 * 1.5));  // of the first key, with temperature 2
  const Tensor out =
      attended("full:temperature=2", {Tensor::from(q, {1, 1, 1, 1}), Tensor::from(k, {1, 2, 1, 1}),
                                      Tensor::from(v, {1, 2, 1, 1})});
  CHECK(out.item() == doctest::Approx(3 * a + 7 * (1 - a)).epsilon(tolerance::forward_f64));
}

TEST_CASE("full: the temperature is a factor of the queries") {
  const QueryKeyValue in(2, 9, 11, 3, 4, 5);
  Tensor scaled = in.q.clone();
  for (i64 i = 0; i < scaled.count(); ++i) scaled.data<double>()[i] *= 0.3 * 2;
  check_close(attended("full:temperature=0.3", in.list()), attended("full", {scaled, in.k, in.v}));
}

TEST_CASE("full: a temperature that is 0 in f32 is refused") {
  const QueryKeyValue in(1, 2, 2, 1, 4, 5);
  CHECK_ERROR(attended("full:temperature=1e-46", in.list()),
              "full: temperature is 0 or a number in [1.2e-38, 1e6], got 1e-46");
}

TEST_CASE("full: a head does not know the others") {
  const QueryKeyValue in(2, 70, 70, 3, 4, 5, DType::f32);
  std::vector<Tensor> others{random_normal(in.q.shape(), DType::f32, 4),
                             random_normal(in.k.shape(), DType::f32, 5),
                             random_normal(in.v.shape(), DType::f32, 6)};
  others[0].slice(2, 1, 2).copy_from(in.q.slice(2, 1, 2));
  others[1].slice(2, 1, 2).copy_from(in.k.slice(2, 1, 2));
  others[2].slice(2, 1, 2).copy_from(in.v.slice(2, 1, 2));
  const Tensor out = attended("full", in.list()), changed = attended("full", others);
  CHECK(same_bits(changed.slice(2, 1, 2), out.slice(2, 1, 2)));
  CHECK_FALSE(same_bits(changed, out));
}

TEST_CASE("full: scores of any size") {
  const QueryKeyValue in(1, 3, 66, 1, 1, 2);
  // The largest score dominates: the output is the value of that key.
  Tensor q = Tensor::full({1, 3, 1, 1}, 1e3, DType::f64);
  q.slice(1, 1, 2).fill(-1e3);
  i64 most = 0, least = 0;
  const double* const k = in.k.data<double>();
  for (i64 j = 0; j < 66; ++j) {
    if (k[j] > k[most]) most = j;
    if (k[j] < k[least]) least = j;
  }
  const Tensor out = attended("full:temperature=1e6", {q, in.k, in.v});
  check_close(out.slice(1, 0, 1), in.v.slice(1, most, most + 1));
  check_close(out.slice(1, 1, 2), in.v.slice(1, least, least + 1));
}

TEST_CASE("full: a number added to a whole row of the bias changes nothing") {
  const QueryKeyValue in(2, 9, 70, 3, 4, 5);
  const Tensor bias = random_normal({2, 3, 9, 70}, DType::f64, 7);
  Tensor shifted = bias.clone();
  for (i64 i = 0; i < 9; ++i) {
    for (i64 b = 0; b < 2; ++b) {
      for (i64 h = 0; h < 3; ++h) {
        for (i64 j = 0; j < 70; ++j) shifted.view<double, 4>()(b, h, i, j) += double(i);
      }
    }
  }
  check_close(attended("full", {in.q, in.k, in.v, shifted}),
              attended("full", {in.q, in.k, in.v, bias}));
}

TEST_CASE("full: a bias of one batch item and head serves all") {
  const QueryKeyValue in(2, 9, 70, 3, 4, 5);
  const Tensor bias = random_normal({1, 1, 9, 70}, DType::f64, 7);
  const Tensor repeated = bias.expand({2, 3, 9, 70}).clone();
  CHECK(same_bits(attended("full", {in.q, in.k, in.v, bias}),
                  attended("full", {in.q, in.k, in.v, repeated})));
}

TEST_CASE("full: a query whose whole bias is -inf gives 0 and takes no gradient") {
  const QueryKeyValue in(1, 5, 70, 2, 3, 4);
  const Tensor bias = random_normal({1, 1, 5, 70}, DType::f64, 7);
  bias.slice(2, 2, 3).fill(-infinite);
  bias.slice(3, 10, 69).fill(-infinite);
  const auto f = [](std::span<const Variable> inputs) {
    return std::vector{attend(AttentionSpec("full"), {}, inputs).out};
  };
  const Run all = run(f, {in.q, in.k, in.v, bias});
  for (const double x : all.outputs[0].slice(1, 2, 3).to_vector<double>()) CHECK(x == 0);
  for (const double x : all.gradients[0].slice(1, 2, 3).to_vector<double>()) CHECK(x == 0);
  for (const double x : all.gradients[1].slice(1, 10, 69).to_vector<double>()) CHECK(x == 0);
  for (const double x : all.gradients[3].slice(2, 2, 3).to_vector<double>()) CHECK(x == 0);
  for (const Tensor& gradient : all.gradients) {
    for (const double x : gradient.to_vector<double>()) REQUIRE(std::isfinite(x));
  }
}

// The kernels count in units of ln 2, where the lowest number times log₂e would be −∞: a mask of
// such numbers leaves a mean.
TEST_CASE_TEMPLATE("full: a finite bias stays finite", T, float, double) {
  const QueryKeyValue in(1, 5, 70, 2, 3, 4);
  const Tensor bias = random_normal({1, 1, 5, 70}, dtype_of<T>, 7);
  bias.slice(2, 2, 3).fill(std::numeric_limits<T>::lowest());
  const Tensor v = in.v.to(dtype_of<T>);
  const Tensor out =
      attended("full", {in.q.to(dtype_of<T>), in.k.to(dtype_of<T>), v, bias}).to(DType::f64);
  for (i64 h = 0; h < 2; ++h) {
    for (i64 m = 0; m < 4; ++m) {
      double mean = 0;
      for (i64 j = 0; j < 70; ++j) mean += in.v.view<double, 4>()(0, j, h, m) / 70;
      CHECK(std::abs(out.view<double, 4>()(0, 2, h, m) - mean) <
            (sizeof(T) == 4 ? tolerance::forward_f32 : tolerance::forward_f64));
    }
  }
}

// With δ_i = dO_i · O_i the gradient of a score is a_ij (d_ij dO_i · v_j − δ_i): compared with the
// gradient of the bias, with and without dropout.
TEST_CASE("full: the gradient of a score") {
  const i64 N = 6, S = 70, M = 5;
  const QueryKeyValue in(1, N, S, 1, 4, M);
  const Tensor bias = random_normal({1, 1, N, S}, DType::f64, 7);
  const Tensor unit = unit_values(1, S, 1);
  for (const double rate : {0.0, 0.4}) {
    AttentionCall call;
    call.dropout = rate;
    const Tensor a = attended("full", {in.q, in.k, unit, bias});           // [1, N, 1, S]
    const Tensor kept = attended("full", {in.q, in.k, unit, bias}, call);  // d ⊙ a
    const Tensor dout = random_normal({1, N, 1, M}, DType::f64, 8);
    const Run got = run_for(dout, mechanism_of("full", call), {in.q, in.k, in.v, bias});
    const Tensor& out = got.outputs[0];
    const auto dot = [&](const Tensor& x, i64 i, i64 j) {
      double sum = 0;
      for (i64 m = 0; m < M; ++m) {
        sum += dout.view<double, 4>()(0, i, 0, m) * x.view<double, 4>()(0, j, 0, m);
      }
      return sum;
    };
    const Tensor wanted = Tensor::empty(bias.shape(), DType::f64);
    for (i64 i = 0; i < N; ++i) {
      for (i64 j = 0; j < S; ++j) {
        wanted.view<double, 4>()(0, 0, i, j) =
            kept.view<double, 4>()(0, i, 0, j) * dot(in.v, i, j) -
            a.view<double, 4>()(0, i, 0, j) * dot(out, i, i);
      }
    }
    CHECK(relative_error(got.gradients[3], wanted) <= tolerance::backward_f64);
  }
}

TEST_CASE("full: f32 over thousands of keys") {
  const i64 N = tested_is_emulated() && sanitized && !all_wanted() ? 1024 : 4096;
  const QueryKeyValue in(1, N, N, 1, 4, 4, DType::f32);
  const std::vector<Tensor> inputs{in.q, in.k, in.v};
  for (const bool masked : {false, true}) {
    const auto f = [&](std::span<const Variable> variables) {
      return std::vector{
          attend(AttentionSpec("full"), masked ? causal() : AttentionCall{}, variables).out};
    };
    const Run got = run(f, inputs), wanted = run(f, in_f64(inputs));
    CHECK(relative_error(got.outputs[0], wanted.outputs[0]) <= tolerance::forward_f32_long);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(relative_error(got.gradients[i], wanted.gradients[i]) <= tolerance::backward_f32);
    }
  }
}

TEST_CASE("full: decoding with room for some keys attends to the last of them") {
  constexpr i64 N = 20, room = 6;
  const QueryKeyValue in(2, N, N, 3, 4, 5);
  const AttentionSpec spec("full");
  const auto state = spec.mechanism().decode(spec, {.B = 2, .N = N, .S = N, .H = 3, .E = 4, .M = 5},
                                             DType::f64, room);
  CHECK(state->bytes() == 2 * room * 3 * (4 + 5) * 8);
  for (i64 i = 0; i < N; ++i) {
    const i64 first = std::max<i64>(0, i + 1 - room);
    const auto at = [&](const Tensor& x) { return x.slice(1, i, i + 1); };
    const Tensor out = state->step(on_device({at(in.q), at(in.k), at(in.v)}));
    check_close(out, attended("full", {at(in.q), in.k.slice(1, first, i + 1),
                                       in.v.slice(1, first, i + 1)}));
  }
  CHECK_ERROR(spec.mechanism().decode(spec, {}, DType::f64, 0), "full: decoding wants room");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
