// Properties of improved clustered attention and its causal form alone (page:
// ops/attention/i_clustered/i_clustered.h).
#include <algorithm>
#include <cmath>

#include "tests/attention/run_attention.h"
#include "tests/attention/sample.h"
#include "tests/threads.h"

namespace weft {
namespace {

// A cluster for every query of a head.
AttentionCall alone(i64 B, i64 H, i64 N) {
  AttentionCall call;
  const Tensor labels = Tensor::zeros({B, H, N}, DType::i64);
  for (i64 i = 0; i < labels.count(); ++i) labels.data<i64>()[i] = i % N;
  call.given["labels"] = labels;
  return call;
}

// One on an emulated device.
i64 heads() { return few_on_device() ? 1 : 3; }

TEST_SUITE("attention") {

TEST_CASE("i-clustered: with all keys chosen it is full attention") {
  const QueryKeyValue in(2, 70, 83, heads(), 4, 5);
  AttentionCall call;
  for (const bool lengths : {false, true}) {
    if (lengths) call.lengths = lengths_of({83, 31});
    const Run wanted = attended_run("full", in.list(), call);
    for (const std::string option : {"topk=83", "topk=200", "topk=83,detach_mass=1"}) {
      for (const std::string clusters : {"7", "150"}) {
        const bool few = tested_is_emulated() && sanitized && !all_wanted();
        if (few && lengths == (clusters == "7")) continue;
        if (few_on_device() && option == "topk=200" && clusters == "150") continue;
        CAPTURE(option);
        const std::string spec = "i-clustered:clusters=" + clusters + "," + option;
        check_close(attended_run(spec, in.list(), call), wanted);
      }
    }
  }
}

TEST_CASE("i-clustered: a cluster for every query is full attention for any topk") {
  const QueryKeyValue in(2, 70, 83, heads(), 4, 5);
  const Run wanted = attended_run("full", in.list());
  for (const int topk : {1, 7, 32, 64, 82}) {
    if (few_here() && topk != 7 && topk != 64) continue;
    if (fewest_on_device() && topk != 64) continue;
    CAPTURE(topk);
    check_close(attended_run(fmt::format("i-clustered:clusters=70,topk={}", topk), in.list(),
                             alone(2, heads(), 70)),
                wanted);
  }
}

TEST_CASE("i-clustered: no keys chosen leaves clustered attention") {
  const QueryKeyValue in(2, 70, 83, 3, 4, 5);
  AttentionCall call;
  call.given["topk"] = Tensor::full({2, 3, 9, 6}, -1, DType::i64);
  check_close(attended_run("i-clustered:clusters=9,topk=6", in.list(), call),
              attended_run("clustered:clusters=9", in.list()));
}

TEST_CASE("i-clustered: the weights of a row sum to one") {
  QueryKeyValue in(2, 300, 150, 2, 6, 1, DType::f64);
  in.v.fill(1);
  for (const std::string spec : {"i-clustered", "i-clustered:topk=3,clusters=5,temperature=2"}) {
    CHECK(relative_error(attended(spec, in.list()), Tensor::full({2, 300, 2, 1}, 1, DType::f64)) <=
          tolerance::forward_f64);
  }
}

// Proposition 2: ‖aᵗ_i − a_i‖₁ <= ‖a_c − a_i‖₁; on T the difference is that of the masses;
// elsewhere aᵗ = a_c.
TEST_CASE("i-clustered: never farther from full attention than clustered") {
  const i64 N = 80, S = 60, H = 2, C = 9, k = 8;
  QueryKeyValue in(1, N, S, H, 5, S);
  in.v = unit_values(1, S, H);
  for (const std::string temperature : {"0.2", "1"}) {
    const std::string common = "clusters=9,temperature=" + temperature;
    const Choices choices = chosen("i-clustered:topk=8," + common, in.list());
    const Tensor improved = attended("i-clustered:topk=8," + common, in.list());
    const Tensor clustered = attended("clustered:" + common, in.list());
    const Tensor full = attended("full:temperature=" + temperature, in.list());
    for (i64 i = 0; i < N; ++i) {
      for (i64 h = 0; h < H; ++h) {
        const i64 c = choices.at("labels").data<i64>()[h * N + i];
        const i64* const keys = choices.at("topk").data<i64>() + (h * C + c) * k;
        double far_improved = 0, far_clustered = 0, on = 0, mass = 0, mass_full = 0;
        for (i64 s = 0; s < S; ++s) {
          const double at = improved.view<double, 4>()(0, i, h, s);
          const double ac = clustered.view<double, 4>()(0, i, h, s);
          const double a = full.view<double, 4>()(0, i, h, s);
          far_improved += std::abs(at - a);
          far_clustered += std::abs(ac - a);
          if (std::count(keys, keys + k, s) == 1) {
            on += std::abs(at - a);
            mass += ac;
            mass_full += a;
          } else {
            CHECK(std::abs(at - ac) <= 1e-15);
          }
        }
        CHECK(far_improved <= far_clustered + 1e-14);
        CHECK(std::abs(on - std::abs(mass - mass_full)) <= 1e-14);
      }
    }
  }
}

TEST_CASE("i-clustered: the keys chosen are those of the largest scores") {
  const i64 N = 200, S = 500, C = 6;
  const QueryKeyValue in(1, N, S, 1, 5, 3, DType::f64);
  for (const i64 k : {1, 7, 32, 100, 300, 500}) {  // 300: more than fits in shared memory
    if (fewest_on_device() && k != 32 && k != 300) continue;
    const Choices choices = chosen(fmt::format("i-clustered:clusters=6,topk={}", k), in.list());
    const i64* const labels = choices.at("labels").data<i64>();
    for (i64 c = 0; c < C; ++c) {
      std::vector<std::pair<double, i64>> scores;
      for (i64 s = 0; s < S; ++s) {
        double score = 0;
        for (i64 i = 0; i < N; ++i) {
          for (i64 e = 0; e < 5 && labels[i] == c; ++e) {
            score += in.q.data<double>()[i * 5 + e] * in.k.data<double>()[s * 5 + e];
          }
        }
        scores.emplace_back(-score, s);
      }
      std::sort(scores.begin(), scores.end());
      std::vector<i64> wanted;
      for (i64 t = 0; t < k; ++t) wanted.push_back(scores[std::size_t(t)].second);
      std::sort(wanted.begin(), wanted.end());
      CHECK(choices.at("topk").slice(2, c, c + 1).to_vector<i64>() == wanted);
    }
  }
}

TEST_CASE("i-clustered: of equal scores the lowest keys are chosen") {
  QueryKeyValue in(1, 20, 150, 1, 1, 2, DType::f32);
  in.q.fill(1);
  in.k.fill(0.5);
  for (const i64 s : {70, 3, 149}) in.k.slice(1, s, s + 1).fill(2);
  const auto keys = [&](int k) {
    return chosen(fmt::format("i-clustered:clusters=1,topk={}", k), in.list())
        .at("topk")
        .to_vector<i64>();
  };
  CHECK(keys(2) == std::vector<i64>{3, 70});
  CHECK(keys(3) == std::vector<i64>{3, 70, 149});
  CHECK(keys(6) == std::vector<i64>{0, 1, 2, 3, 70, 149});
}

TEST_CASE("i-clustered: NaN in a score counts as the largest, and reaches the output") {
  QueryKeyValue in(1, 40, 150, 1, 4, 3);
  for (const i64 s : {97, 149}) in.k.slice(1, s, s + 1).fill(not_a_number);
  const Choices choices = chosen("i-clustered:clusters=1,topk=2", in.list());
  CHECK(choices.at("topk").to_vector<i64>() == std::vector<i64>{97, 149});
  for (const double x : attended("i-clustered:clusters=1,topk=2", in.list()).to_vector<double>()) {
    CHECK(std::isnan(x));
  }
  QueryKeyValue causal_in(1, 40, 40, 1, 4, 3);
  causal_in.k.slice(1, 20, 21).fill(not_a_number);
  const std::string spec = "i-clustered-causal:clusters=1,topk=3";
  for (const Tensor& out : {attended(spec, causal_in.list(), causal()),
                            defined_run(spec, causal_in.list(), causal()).outputs[0]}) {
    const std::vector<double> values = out.to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::isnan(values[i]) == (i / 3 >= 20));
  }
}

TEST_CASE("i-clustered: an item shorter than topk has all its keys, and -1 behind them") {
  const QueryKeyValue in(2, 40, 40, 2, 4, 3);
  const AttentionCall call = with_lengths({5, 0});
  const Tensor topk = chosen("i-clustered:clusters=3,topk=8", in.list(), call).at("topk");
  for (i64 row = 0; row < 2 * 2 * 3; ++row) {
    for (i64 t = 0; t < 8; ++t) {
      CHECK(topk.data<i64>()[row * 8 + t] == (row < 6 && t < 5 ? t : -1));
    }
  }
}

// The two gradients differ by that of Σ_c dm_c m_c with constant dm_c. With one cluster m is the
// output of clustered attention for values that are 1 on T.
TEST_CASE("i-clustered: detach_mass takes away the gradient through the mass alone") {
  const i64 N = 30, S = 50, k = 6;
  const QueryKeyValue in(1, N, S, 1, 4, 3);
  const std::string spec = "i-clustered:clusters=1,topk=6";
  const Tensor topk = chosen(spec, in.list()).at("topk");
  const Tensor dout = random_normal({1, N, 1, 3}, DType::f64, 9);
  const auto gradients = [&](const std::string& text, const std::vector<Tensor>& inputs,
                             const Tensor& gradient) {
    return run_for(gradient, mechanism_of(text), inputs).gradients;
  };
  const auto exact = gradients(spec, in.list(), dout);
  const auto detached = gradients(spec + ",detach_mass=1", in.list(), dout);
  CHECK(same_bits(attended(spec, in.list()), attended(spec + ",detach_mass=1", in.list())));
  CHECK(same_bits(exact[2], detached[2]));

  Tensor k_top = Tensor::empty({1, k, 1, 4}, DType::f64),
         v_top = Tensor::empty({1, k, 1, 3}, DType::f64);
  Tensor marked = Tensor::zeros({1, S, 1, 1}, DType::f64);
  for (i64 t = 0; t < k; ++t) {
    const i64 s = topk.data<i64>()[t];
    k_top.slice(1, t, t + 1).copy_from(in.k.slice(1, s, s + 1));
    v_top.slice(1, t, t + 1).copy_from(in.v.slice(1, s, s + 1));
    marked.data<double>()[s] = 1;
  }
  const Tensor top = attended("full", {in.q, k_top, v_top});
  Tensor dmass = Tensor::zeros({1, N, 1, 1}, DType::f64);
  for (i64 i = 0; i < N * 3; ++i) {
    dmass.data<double>()[0] += dout.data<double>()[i] * top.data<double>()[i];
  }
  const auto through = gradients("clustered:clusters=1", {in.q, in.k, marked}, dmass);
  for (std::size_t i = 0; i < 2; ++i) {
    const Tensor difference = exact[i].clone();
    for (i64 e = 0; e < difference.count(); ++e) {
      difference.data<double>()[e] -= detached[i].data<double>()[e];
    }
    CHECK(relative_error(difference, through[i]) <= 1e-10);
  }
}

TEST_CASE("i-clustered: long sequences give the same bits for any number of threads") {
  const bool few = few_on_device();  // that device runs on one thread
  const i64 N = few ? 300 : 3000;
  const QueryKeyValue in(1, N, N, heads(), 8, 8, DType::f32);
  AttentionCall call;
  call.dropout = 0.2;
  for (const std::string spec : {"clustered", "i-clustered", "i-clustered-causal"}) {
    call.causal = spec == "i-clustered-causal";
    const ThreadsOf one(1);
    const Run first = attended_run(spec, in.list(), call);
    for (const int team : few ? std::vector{2} : std::vector{2, 3}) {
      const ThreadsOf scope(team);
      check_same_bits(attended_run(spec, in.list(), call), first);
    }
  }
}

TEST_CASE("i-clustered: more than a block of clusters") {
  const QueryKeyValue in(1, 400, 90, 1, 5, 7);
  for (const std::string spec :
       {"i-clustered:clusters=300,topk=10,bits=63", "i-clustered:clusters=129,topk=90"}) {
    if (fewest_on_device() && spec.back() == '3') continue;
    AttentionCall call;
    call.dropout = 0.25;
    check_close(attended_run(spec, in.list(), call), defined_run(spec, in.list(), call));
  }
}

TEST_CASE("i-clustered-causal: with all keys chosen it is causal full attention") {
  const QueryKeyValue in(2, 130, 130, std::min<i64>(heads(), 2), 4, 5);
  AttentionCall call = causal();
  for (const bool lengths : {false, true}) {
    if (lengths) {
      call.lengths = lengths_of({130, 31});
      call.query_lengths = call.lengths;
    }
    const Run wanted = attended_run("full", in.list(), call);
    call.query_lengths = {};
    check_close(attended_run("i-clustered-causal:topk=130,clusters=9", in.list(), call), wanted);
  }
}

TEST_CASE("i-clustered-causal: a row whose keys all lie ahead is 0") {
  const i64 N = 12;
  const QueryKeyValue in(1, N, N, 1, 4, 3);
  AttentionCall call = causal();
  call.given["topk"] = Tensor::from(std::vector<i64>{7, 9}, {1, 1, 1, 2});
  const Run got = attended_run("i-clustered-causal:clusters=1,topk=2", in.list(), call);
  const auto zero = [](const Tensor& x) {
    return same_bits(x.clone(), Tensor::zeros(x.shape(), DType::f64));
  };
  CHECK(zero(got.outputs[0].slice(1, 0, 7)));
  CHECK(zero(got.gradients[0].slice(1, 0, 9)));  // with one key there is no choice
  // Rows 7 and 8 see key 7 alone.
  for (const i64 i : {7, 8}) {
    CHECK(relative_error(got.outputs[0].slice(1, i, i + 1), in.v.slice(1, 7, 8)) <=
          tolerance::forward_f64);
  }
  CHECK_FALSE(zero(got.gradients[0].slice(1, 9, 10)));
}

TEST_CASE("i-clustered-causal: the future leaks through what is selected") {
  const i64 N = 60;
  QueryKeyValue in(1, N, N, 1, 4, 3);
  const std::string spec = "i-clustered-causal:clusters=3,topk=4";
  const Tensor before = attended(spec, in.list(), causal());
  in.q = in.q.clone();
  in.q.slice(1, N / 2, N).copy_from(random_normal({1, N / 2, 1, 4}, DType::f64, 8));
  const Tensor after = attended(spec, in.list(), causal());
  CHECK_FALSE(same_bits(after.slice(1, 0, N / 2).clone(), before.slice(1, 0, N / 2).clone()));
}

TEST_CASE("i-clustered: bad options and choices") {
  const QueryKeyValue in(1, 6, 6, 2, 3, 2);
  CHECK_ERROR(AttentionSpec("i-clustered:topk=0"), "topk is a number in [1, 4096], got '0'");
  CHECK_ERROR(AttentionSpec("i-clustered:topk=4097"), "[1, 4096], got '4097'");
  CHECK_ERROR(AttentionSpec("i-clustered:clusters=0"), "clusters is a number in [1, 4096]");
  CHECK_ERROR(AttentionSpec("i-clustered:bits=64"), "bits is a number in [1, 63]");
  CHECK_ERROR(AttentionSpec("i-clustered-causal:detach_mass=1"),
              "there is no option 'detach_mass'");
  CHECK_ERROR(attended("i-clustered-causal", in.list()), "causal");
  CHECK_ERROR(attended("i-clustered", in.list(), causal()), "causal");
  const auto fails = [&](const char* name, std::vector<i64> values, const Shape& shape,
                         const char* part) {
    AttentionCall call;
    call.given[name] = Tensor::from(values, shape);
    CHECK_ERROR(attended("i-clustered:clusters=1,topk=3", in.list(), call), part);
  };
  fails("topk", {0, 1, 2, 0, 1, 6}, {1, 2, 1, 3},
        "the given topk[0, 1, 0, 2] is 6; wanted 0 … 5, and -1");
  fails("topk", {0, 1, 2, 0, 1, -2}, {1, 2, 1, 3}, "-2");
  fails("topk", {0, 1, 2, 0, 2, 1}, {1, 2, 1, 3}, "is 1; after 2");
  fails("topk", {0, 1, 2, 0, -1, 1}, {1, 2, 1, 3}, "is 1; after -1");
  fails("topk", {0, 1}, {1, 2, 1, 1}, "topk");
  fails("labels", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, {1, 2, 6},
        "the given labels[0, 1, 5] is 1; wanted 0 … 0");
  fails("positions", {0, 0}, {2}, "positions");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
