// Properties of the Sinkhorn Transformer alone (mechanism page:
// ops/attention/sinkhorn/sinkhorn.h).
#include <cmath>
#include <numbers>

#include "ops/attention/pattern.h"
#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft::sinkhorn_tests {
namespace {

constexpr i64 H = 2, E = 3, M = 4, b = 5;

const std::string text = "sinkhorn:block=5";

struct Sorted {
  QueryKeyValue in;
  Tensor sort_weight, null_k, null_v;
  i64 B, N, n;

  Sorted(i64 items, i64 blocks, i64 learnt_for = 0)
      : in(items, blocks * b, blocks * b, H, E, M),
        sort_weight(normal({H, 2 * E, learnt_for > 0 ? learnt_for : blocks}, 8)),
        null_k(normal({H, E}, 9)),
        null_v(normal({H, M}, 10)),
        B(items),
        N(blocks * b),
        n(blocks) {}

  std::vector<Tensor> list() const { return in.list(); }
  std::vector<Tensor> simple() const { return {in.q, in.k, in.v, sort_weight}; }
  std::vector<Tensor> with_null() const { return {in.q, in.k, in.v, null_k, null_v}; }
};

View<const double, 4> of(const Tensor& x) { return x.view<const double, 4>(); }

// P of one item and head, [n][n + 1], the null block last; 0 for it without `causal`.
using Matrix = std::vector<std::vector<double>>;

Matrix order_of(const Sorted& x, i64 item, i64 h, bool simple, const Tensor& noise, i64 iterations,
                double sort_temperature) {
  Matrix P(std::size_t(x.n), std::vector<double>(std::size_t(x.n + 1), 0));
  for (i64 s = 0; s < x.n; ++s) {
    for (i64 t = 0; t < x.n; ++t) {
      double R = 0;
      for (i64 e = 0; e < E; ++e) {
        double sum_q = 0, sum_k = 0, own_k = 0;
        for (i64 r = 0; r < b; ++r) {
          sum_q += of(x.in.q)(item, s * b + r, h, e);
          sum_k += of(x.in.k)(item, t * b + r, h, e);
          own_k += of(x.in.k)(item, s * b + r, h, e);
        }
        const auto w = x.sort_weight.view<const double, 3>();
        R += simple ? sum_q * w(h, e, t) + own_k * w(h, E + e, t)
                    : sum_q / b * sum_k / b / std::sqrt(double(E));
      }
      const double g = noise.defined() ? of(noise)(item, h, s, t) : 0;
      P[std::size_t(s)][std::size_t(t)] =
          std::pow((std::max(R, 0.0) + 1e-6) * std::exp(g), 1 / sort_temperature);
    }
  }
  for (i64 step = 0; step < 2 * iterations; ++step) {
    for (i64 line = 0; line < x.n; ++line) {
      const auto at = [&](i64 u) -> double& {
        return step % 2 == 0 ? P[std::size_t(line)][std::size_t(u)]
                             : P[std::size_t(u)][std::size_t(line)];
      };
      double sum = 0;
      for (i64 u = 0; u < x.n; ++u) sum += at(u);
      for (i64 u = 0; u < x.n; ++u) at(u) /= sum;
    }
  }
  return P;
}

Matrix causal_order_of(const Sorted& x, i64 item, i64 h, double sort_temperature) {
  Matrix P(std::size_t(x.n), std::vector<double>(std::size_t(x.n + 1), 0));
  for (i64 s = 0; s < x.n; ++s) {
    std::vector<double> w(std::size_t(s), 0);
    for (i64 t = 0; t < s; ++t) {
      for (i64 e = 0; e < E; ++e) {
        double a = 0, c = 0, k = 0;
        for (i64 p = 0; p <= s * b; ++p) a += of(x.in.q)(item, p, h, e) / double(s * b + 1);
        for (i64 p = 0; p < (t + 1) * b; ++p) {
          k += of(x.in.k)(item, p, h, e);
          if (p >= t * b) c += k / double(p + 1);
        }
        w[std::size_t(t)] += a * c / std::sqrt(double(E)) / sort_temperature;
      }
    }
    double sum = 1, most = 1;  // the null block's score is 0
    i64 picked = x.n;
    for (i64 t = 0; t < s; ++t) {
      const double weight = std::exp(w[std::size_t(t)]);
      sum += weight;
      if (weight > most) most = weight, picked = t;
    }
    P[std::size_t(s)][std::size_t(picked)] = most / sum;
  }
  return P;
}

// Attention of the equations with the order that `order(item, h)` gives.
template <class Order>
Tensor by_loops(const Sorted& x, bool causal, const Order& order) {
  const Tensor out = Tensor::zeros({x.B, x.N, H, M}, DType::f64);
  for (i64 item = 0; item < x.B; ++item) {
    for (i64 h = 0; h < H; ++h) {
      const Matrix P = order(item, h);
      const auto mixed = [&](const Tensor& rows, const Tensor& null, i64 i, i64 e) {
        const std::vector<double>& weights = P[std::size_t(i / b)];
        double sum = weights[std::size_t(x.n)] * null.view<const double, 2>()(h, e);
        for (i64 t = 0; t < x.n; ++t) {
          sum += weights[std::size_t(t)] * of(rows)(item, t * b + i % b, h, e);
        }
        return sum;
      };
      for (i64 i = 0; i < x.N; ++i) {
        double total = 0;
        std::vector<double> o(std::size_t(M), 0);
        const auto add = [&](const auto& key, const auto& value) {
          double z = 0;
          for (i64 e = 0; e < E; ++e)
            z += of(x.in.q)(item, i, h, e) * key(e) / std::sqrt(double(E));
          total += std::exp(z);
          for (i64 m = 0; m < M; ++m) o[std::size_t(m)] += std::exp(z) * value(m);
        };
        for (i64 j = i / b * b; j < (i / b + 1) * b; ++j) {
          add([&](i64 e) { return mixed(x.in.k, x.null_k, j, e); },
              [&](i64 m) { return mixed(x.in.v, x.null_v, j, m); });
          if (causal && j > i) continue;
          add([&](i64 e) { return of(x.in.k)(item, j, h, e); },
              [&](i64 m) { return of(x.in.v)(item, j, h, m); });
        }
        for (i64 m = 0; m < M; ++m) {
          out.view<double, 4>()(item, i, h, m) = o[std::size_t(m)] / total;
        }
      }
    }
  }
  return out;
}

AttentionCall with(const std::string& choice, const Tensor& value, bool causal = false) {
  AttentionCall call;
  call.causal = causal;
  call.given[choice] = value;
  return call;
}

// [n]: the block of keys that the noise assigns to block s of queries.
Tensor noise_of(i64 B, const std::vector<i64>& order) {
  const i64 n = static_cast<i64>(order.size());
  const Tensor noise = Tensor::zeros({B, H, n, n}, DType::f64);
  for (i64 s = 0; s < n; ++s) {
    const i64 t = order[std::size_t(s)];
    noise.slice(2, s, s + 1).slice(3, t, t + 1).fill(100);
  }
  return noise;
}

TEST_SUITE("attention") {

TEST_CASE("sinkhorn: it is its equations") {
  const Sorted x(2, 4);
  const Tensor noise = normal({2, H, 4, 4}, 5);
  for (const bool simple : {false, true}) {
    for (const bool noisy : {false, true}) {
      CAPTURE(simple);
      CAPTURE(noisy);
      const Tensor own = noisy ? noise : Tensor();
      const AttentionCall call = noisy ? with("noise", noise) : AttentionCall();
      const std::vector<Tensor> inputs = simple ? x.simple() : x.list();
      const std::string sort = simple ? ",sort=simple" : "";
      check_close(attended(text + sort, inputs, call), by_loops(x, false, [&](i64 item, i64 h) {
                    return order_of(x, item, h, simple, own, 7, 0.75);
                  }));
      check_close(attended(text + sort + ",iterations=2,sort_temperature=1.5", inputs, call),
                  by_loops(x, false, [&](i64 item, i64 h) {
                    return order_of(x, item, h, simple, own, 2, 1.5);
                  }));
    }
  }
  for (const double temperature : {0.75, 0.1}) {
    const Tensor got =
        attended(fmt::format("{},sort_temperature={}", text, temperature), x.with_null(), causal());
    check_close(got, by_loops(x, true, [&](i64 item, i64 h) {
                  return causal_order_of(x, item, h, temperature);
                }));
  }
}

TEST_CASE("sinkhorn: gradients with noise, a learnt matrix and several blocks of several keys") {
  const ThreadsOf one(1);
  const Sorted x(1, 3, 4);
  AttentionCall call = with("noise", normal({1, H, 3, 3}, 5));
  CHECK_GRADIENTS(mechanism_of(text, call), x.list(), 3, 1e-6, 60);
  CHECK_GRADIENTS(mechanism_of(text + ",sort=simple,iterations=3", call), x.simple(), 3, 1e-6, 60);
  call = with("picked", chosen(text, x.with_null(), causal()).at("picked"), true);
  CHECK_GRADIENTS(mechanism_of(text, call), x.with_null(), 3, 1e-6, 60);
  // Blocks that do not have the largest weight.
  call.given["picked"] = Tensor::from(std::vector<i64>{-1, 0, 1, -1, -1, 0}, {1, H, 3});
  call.dropout = 0.3;
  CHECK_GRADIENTS(mechanism_of(text, call), x.with_null(), 3, 1e-6, 60);
  check_close(attended_run(text, x.with_null(), call), defined_run(text, x.with_null(), call));
}

TEST_CASE("sinkhorn: one block is full attention, whose keys are there twice") {
  const QueryKeyValue in(2, 70, 70, H, E, M);
  const Run full = attended_run("full", in.list());
  check_close(attended_run("sinkhorn:block=70", in.list()), full);
  CHECK(relative_error(attended("sinkhorn:block=35", in.list()), full.outputs[0]) > 1e-2);
}

// With queries of 0 all of the 2b keys have the same weight; values say to which block they belong.
TEST_CASE("sinkhorn: rows and columns of the order sum to one") {
  const i64 n = 6;
  Sorted x(1, n);
  x.in.q.fill(0);
  x.in.v = Tensor::zeros({1, n * b, H, n}, DType::f64);
  for (i64 t = 0; t < n; ++t) x.in.v.slice(1, t * b, (t + 1) * b).slice(3, t, t + 1).fill(1);
  for (const i64 iterations : {7, 900}) {
    const Tensor out =
        attended(fmt::format("{},sort=simple,sort_temperature=4,iterations={}", text, iterations),
                 x.simple());
    for (i64 h = 0; h < H; ++h) {
      for (i64 line = 0; line < n; ++line) {
        double row = 0, column = 0, largest = 0;
        for (i64 u = 0; u < n; ++u) {
          row += of(out)(0, line * b, h, u);
          column += of(out)(0, u * b, h, line);
          largest = std::max(largest, 2 * of(out)(0, line * b, h, u) - (u == line ? 1 : 0));
        }
        // Half of each weight is the own block's. Columns come last.
        CHECK(column == doctest::Approx(1).epsilon(1e-12));
        if (iterations == 900) CHECK(row == doctest::Approx(1).epsilon(1e-6));
        CHECK(largest > 1.5 / double(n));
      }
    }
  }
}

TEST_CASE(
    "sinkhorn: an order that is a permutation shows two blocks, by full attention's pattern") {
  const i64 n = 4;
  const Sorted x(2, n);
  const std::vector<i64> order{2, 0, 3, 1};
  const Tensor mask = Tensor::zeros({n * b, n * b}, DType::u8);
  for (i64 s = 0; s < n; ++s) {
    for (const i64 t : {s, order[std::size_t(s)]}) {
      mask.slice(0, s * b, (s + 1) * b).slice(1, t * b, (t + 1) * b).fill(1);
    }
  }
  AttentionCall patterned;
  patterned.pattern = std::make_shared<const AttentionPattern>(mask, n * b, n * b);
  check_close(attended(text, x.list(), with("noise", noise_of(2, order))),
              attended("full", x.list(), patterned));
}

TEST_CASE("sinkhorn: noise is Gumbel's, of the key, and drawn in training alone") {
  const i64 n = 40;
  const std::vector<Tensor> inputs = QueryKeyValue(2, n, n, H, E, M).list();
  AttentionCall call;
  call.random = {1, 2, 3};
  CHECK(chosen("sinkhorn:block=1", inputs, call).empty());
  const Tensor plain = attended("sinkhorn:block=1", inputs, call);
  call.training = true;
  const Tensor noise = chosen("sinkhorn:block=1", inputs, call).at("noise");
  REQUIRE(noise.shape() == Shape{2, H, n, n});
  const Tensor noisy = attended("sinkhorn:block=1", inputs, call);
  CHECK(relative_error(noisy, plain) > 1e-3);
  CHECK(same_bits(attended("sinkhorn:block=1", inputs, with("noise", noise)), noisy));
  double mean = 0, square = 0;
  const std::vector<double> numbers = noise.to_vector<double>();
  for (const double g : numbers) mean += g / double(numbers.size());
  for (const double g : numbers) square += (g - mean) * (g - mean) / double(numbers.size());
  CHECK(mean == doctest::Approx(std::numbers::egamma).epsilon(0.06));
  CHECK(square == doctest::Approx(std::numbers::pi * std::numbers::pi / 6).epsilon(0.06));
  call.random.step = 9;
  CHECK_FALSE(same_bits(attended("sinkhorn:block=1", inputs, call), noisy));
}

TEST_CASE("sinkhorn: of equal weights the null block comes first, then the lowest") {
  Sorted x(1, 4);
  x.in.q.fill(0);  // all scores are those of the null block
  const Tensor picked = chosen(text, x.with_null(), causal()).at("picked");
  for (const i64 t : picked.to_vector<i64>()) CHECK(t == -1);
  x.in.q.fill(1), x.in.k.fill(1);
  const std::vector<i64> same = chosen(text, x.with_null(), causal()).at("picked").to_vector<i64>();
  CHECK(same == std::vector<i64>{-1, 0, 0, 0, -1, 0, 0, 0});
}

TEST_CASE("sinkhorn: what it refuses") {
  const auto refuses = [](const std::string& spec, const std::vector<Tensor>& inputs,
                          const char* message, const AttentionCall& call = {}) {
    CHECK_ERROR(attended(spec, inputs, call), message);
  };
  const Sorted x(1, 4);
  refuses("sinkhorn:block=6", x.list(),
          "sinkhorn: wanted whole blocks, a multiple of block=6 positions, got 20");
  refuses("sinkhorn", x.list(), "a multiple of block=64 positions, got 20");
  refuses(text + ",iterations=0", x.list(),
          "attention sinkhorn: iterations is a number in [1, 1000], got '0'");
  refuses(text + ",sort=simple", x.simple(),
          "sinkhorn: has a causal form with sort=attention alone", causal());
  refuses(text + ",iterations=2", x.with_null(),
          "sinkhorn: has a causal form with iterations=7 alone", causal());
  refuses(text, x.list(), "sinkhorn: the input null_k is missing", causal());
  refuses(text, x.with_null(), "sinkhorn: null_k is an input of causal calls only");
  refuses(text + ",sort=simple", Sorted(1, 4, 3).simple(),
          "sinkhorn: sort_weight must be [H, 2E, ⌊N_max/block⌋] with ⌊N_max/block⌋ = 4");
  AttentionCall lengths;
  lengths.lengths = lengths_of({10});
  refuses(text, x.list(), "sinkhorn: does not take lengths", lengths);
  refuses(
      text, x.with_null(),
      "sinkhorn: the given picked[0, 1, 2] is 2; wanted a block before block 2, or -1",
      with("picked", Tensor::from(std::vector<i64>{-1, 0, 1, 2, -1, 0, 2, 2}, {1, H, 4}), true));
  refuses(text, x.list(), "sinkhorn: the given noise must be [1,2,4,4] of f64",
          with("noise", normal({1, H, 4, 5}, 1)));
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft::sinkhorn_tests
