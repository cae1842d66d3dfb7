// Properties of attention to the k largest keys alone (page: ops/attention/topk/topk.h).
#include <cmath>
#include <limits>

#include "tests/attention/run_attention.h"

namespace weft {
namespace {

TEST_SUITE("attention") {

TEST_CASE("topk: with k >= S it is full attention, dropout included") {
  const std::vector<Tensor> inputs{normal({2, 40, 3, 5}, 1), normal({2, 40, 3, 5}, 2),
                                   normal({2, 40, 3, 4}, 3)};
  for (const bool causal : {false, true}) {
    for (const double rate : {0.0, 0.3}) {
      AttentionCall call;
      call.causal = causal;
      call.dropout = rate;
      call.random = {1, 2, 3};
      const Run full = attended_run("full", inputs, call);
      check_close(attended_run("topk:topk=40", inputs, call), full);
      check_close(attended_run("topk:topk=1000", inputs, call), full);
    }
  }
}

TEST_CASE("topk: k = 1 copies the value of the largest key") {
  const i64 N = 7, S = 300;
  const Tensor q = normal({1, N, 1, 6}, 1), k = normal({1, S, 1, 6}, 2),
               v = normal({1, S, 1, 3}, 3);
  const Tensor out = attended("topk:topk=1", {q, k, v});
  for (i64 i = 0; i < N; ++i) {
    i64 best = 0;
    double most = -std::numeric_limits<double>::infinity();
    for (i64 j = 0; j < S; ++j) {
      double score = 0;
      for (i64 e = 0; e < 6; ++e) {
        score += q.view<double, 4>()(0, i, 0, e) * k.view<double, 4>()(0, j, 0, e);
      }
      if (score > most) most = score, best = j;
    }
    CHECK(same_bits(out.slice(1, i, i + 1).clone(), v.slice(1, best, best + 1).clone()));
  }
}

TEST_CASE("topk: at equal scores the lower keys stay") {
  // Scores 1 at the keys 2, 3, 200, 250, otherwise 0.
  const Tensor k = Tensor::zeros({1, 300, 1, 1}, DType::f64);
  for (const i64 j : {2, 3, 200, 250}) k.slice(1, j, j + 1).fill(1);
  const std::vector<Tensor> inputs{Tensor::full({1, 1, 1, 1}, 1, DType::f64), k,
                                   normal({1, 300, 1, 2}, 3)};
  using Keys = std::vector<i64>;
  CHECK(chosen("topk:topk=3", inputs).at("topk").to_vector<i64>() == Keys{2, 3, 200});
  CHECK(chosen("topk:topk=6", inputs).at("topk").to_vector<i64>() == Keys{0, 1, 2, 3, 200, 250});
}

TEST_CASE("topk: what is kept does not depend on the temperature") {
  const std::vector<Tensor> inputs{normal({2, 30, 2, 4}, 1), normal({2, 200, 2, 4}, 2),
                                   normal({2, 200, 2, 4}, 3)};
  const Tensor usual = chosen("topk:topk=9", inputs).at("topk");
  for (const char* temperature : {"0.01", "3", "1000"}) {
    const std::string spec = std::string("topk:topk=9,temperature=") + temperature;
    CHECK(same_bits(chosen(spec, inputs).at("topk"), usual));
  }
}

TEST_CASE("topk: a causal query with few keys has -1 behind them") {
  const std::vector<Tensor> inputs{normal({1, 3, 1, 4}, 1), normal({1, 3, 1, 4}, 2),
                                   normal({1, 3, 1, 4}, 3)};
  CHECK(chosen("topk:topk=3", inputs, causal()).at("topk").to_vector<i64>() ==
        std::vector<i64>{0, -1, -1, 0, 1, -1, 0, 1, 2});
}

TEST_CASE("topk: more keys are kept than shared memory holds") {
  const std::vector<Tensor> inputs{normal({1, 9, 1, 3}, 1), normal({1, 2500, 1, 3}, 2),
                                   normal({1, 2500, 1, 2}, 3)};
  check_close(attended_run("topk:topk=1200", inputs), defined_run("topk:topk=1200", inputs));
}

TEST_CASE("topk: NaN in a score reaches the output of its query alone") {
  const Tensor q = normal({1, 3, 1, 4}, 1);
  q.slice(1, 1, 2).fill(std::numeric_limits<double>::quiet_NaN());
  const Tensor out =
      attended("topk:topk=2", {q, normal({1, 400, 1, 4}, 2), normal({1, 400, 1, 2}, 3)});
  const std::vector<double> values = out.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::isnan(values[i]) == (i / 2 == 1));
}

TEST_CASE("topk: its cost counts the keys that each query keeps") {
  for (const i64 N : {1, 9, 70}) {
    for (const i64 k : {1, 8, 100}) {
      for (const bool causal : {false, true}) {
        CAPTURE(N);
        CAPTURE(k);
        double kept = 0;
        for (i64 i = 0; i < N; ++i) kept += double(std::min(k, causal ? i + 1 : N));
        CHECK(counted_pairs(fmt::format("topk:topk={}", k), N, causal) == kept);
      }
    }
  }
}

TEST_CASE("topk: bad choices and options are refused") {
  const std::vector<Tensor> inputs{normal({1, 2, 1, 4}, 1), normal({1, 5, 1, 4}, 2),
                                   normal({1, 5, 1, 4}, 3)};
  const auto with = [&](const std::vector<i64>& keys, const Shape& shape) {
    AttentionCall call;
    call.given["topk"] = Tensor::from(keys, shape);
    return attended("topk:topk=2", inputs, call);
  };
  CHECK_NOTHROW(with({0, 4, 2, -1}, {1, 1, 2, 2}));
  CHECK_ERROR(with({0, 5, 2, 3}, {1, 1, 2, 2}),
              "topk: the given topk[0, 0, 0, 1] is 5; wanted 0 … 4, and -1");
  CHECK_ERROR(with({3, 1, 2, 3}, {1, 1, 2, 2}), "is 1; after 3");
  CHECK_ERROR(with({1, 1, 2, 3}, {1, 1, 2, 2}), "is 1; after 1");
  CHECK_ERROR(with({-1, 1, 2, 3}, {1, 1, 2, 2}), "is 1; after -1");
  CHECK_ERROR(with({0, 1, 2, 3}, {1, 1, 4, 1}), "topk: the given topk must be [1,1,2,2] of i64");
  AttentionCall call;
  call.given["labels"] = Tensor::zeros({1}, DType::i64);
  CHECK_ERROR(attended("topk", inputs, call), "topk: labels cannot be given; these can: topk");
  CHECK_ERROR(AttentionSpec("topk:topk=0"), "topk is a number in [1, 4096], got '0'");
  CHECK_ERROR(attended("topk:topk=2.5", inputs), "topk must be a whole number, got 2.5");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
