// Properties of MEGA alone (mechanism page: ops/attention/mega/mega.h).
#include <cmath>
#include <set>

#include "ops/attention/scores.h"
#include "tests/attention/loops.h"

namespace weft {
namespace {

using loops::Row;
using loops::Rows;

double silu(double x) { return x * loops::sigmoid(x); }
double laplace(double x) {
  return 0.5 * (1 + std::erf((x - 0.707107) / 0.282095 / std::sqrt(2.0)));
}
double relu2(double x) { return std::max(x, 0.0) * std::max(x, 0.0); }

struct Form {
  std::string attention;
  bool causal = false;
  i64 chunk = 0, truncation = 0;
  std::vector<i64> lengths = {};

  std::string spec() const {
    return "mega:key_width=3,value_width=5,states=2,attention=" + attention +
           ",chunk=" + std::to_string(chunk) + ",truncation=" + std::to_string(truncation);
  }
  AttentionCall call() const {
    AttentionCall call = with_lengths(lengths);
    call.causal = causal;
    return call;
  }
};

constexpr i64 width = 4;

std::vector<Tensor> inputs_of(const Form& form, i64 B, i64 N, double size = 0.5) {
  const AttentionSizes sizes{.B = B, .N = N, .S = N, .d = width, .N_max = N, .causal = form.causal};
  std::vector<Tensor> inputs = loops::inputs_of(form.spec(), sizes);
  for (std::size_t i = 8; i < inputs.size(); ++i) {
    for (i64 e = 0; e < inputs[i].count(); ++e) inputs[i].data<double>()[e] *= size;
  }
  return inputs;
}

// The equations, for an item of n positions.
struct Equations {
  const Form& form;
  const std::vector<Tensor>& inputs;
  Rows in;  // their numbers

  Equations(const Form& f, const std::vector<Tensor>& x) : form(f), inputs(x) {
    for (const Tensor& input : inputs) in.push_back(loops::row_of(input));
  }

  std::size_t size(std::size_t input, int axis) const {
    return std::size_t(inputs[input].size(axis));
  }
  double at(std::size_t input, std::size_t i, std::size_t j) const {
    return in[input][i * size(input, -1) + j];
  }
  Rows affine(const Rows& x, std::size_t input) const {
    const Rows weight = loops::rows_of(inputs[input]);
    Rows y;
    for (const Row& row : x) y.push_back(loops::affine(row, weight, in[input + 1]));
    return y;
  }
  Rows normed(const Rows& x) const {
    Rows y;
    for (const Row& row : x) y.push_back(loops::normalised(row, in[1], in[2], 1e-5));
    return y;
  }
  // κ * x, past and future, lag by lag.
  Rows averaged(const Rows& x) const {
    const i64 n = i64(x.size());
    Rows y(x.size(), Row(std::size_t(width), 0.0));
    const std::size_t states = size(3, 2), sets = size(3, 0);
    for (std::size_t place = 0; place < sets * std::size_t(width) * states; ++place) {
      const std::size_t c = place / states % std::size_t(width);
      const double p = loops::sigmoid(in[3][place]), alpha = loops::sigmoid(in[4][place]);
      const double weight = p * in[5][place] * in[6][place] / std::sqrt(double(states));
      double power = 1;
      for (i64 lag = 0; lag < n && (form.truncation == 0 || lag < form.truncation); ++lag) {
        for (i64 i = 0; i < n; ++i) {
          const i64 from = place < std::size_t(width) * states ? i - lag : i + lag;
          if (from < 0 || from >= n) continue;
          y[std::size_t(i)][c] += weight * power * x[std::size_t(from)][c];
        }
        power = power * (1 - p * alpha);
      }
    }
    return y;
  }
  // src for csp: the source of each value.
  Rows attended(const Rows& q, const Rows& k, const Rows& v, const Tensor& src) const {
    const std::size_t n = q.size(), z = size(14, 1), h = v.empty() ? 0 : v[0].size();
    const std::size_t chunk = form.chunk == 0 ? n : std::size_t(form.chunk);
    Rows o(n, Row(h, 0.0));
    for (std::size_t i = 0; i < n; ++i) {
      if (form.attention == "csp") {
        for (std::size_t e = 0; e < h; ++e) {
          o[i][e] = v[std::size_t(src.data<i64>()[i * h + e])][e];
        }
        continue;
      }
      const std::size_t first = i / chunk * chunk;
      const std::size_t end = form.causal ? i + 1 : std::min(first + chunk, n);
      Row a;
      double sum = 0;
      for (std::size_t j = first; j < end; ++j) {
        double product = 0;
        for (std::size_t e = 0; e < z; ++e) product += q[i][e] * k[j][e];
        const double bias = in[16][(in[16].size() - 1) / 2 + j - i];
        if (form.attention == "softmax") {
          a.push_back(std::exp(product / std::sqrt(double(z)) + bias));
          sum += a.back();
          continue;
        }
        const double score = product / double(end - first) + bias;
        a.push_back(form.attention == "laplace" ? laplace(score) : relu2(score));
        sum = 1;
      }
      for (std::size_t j = first; j < end; ++j) {
        for (std::size_t e = 0; e < h; ++e) o[i][e] += a[j - first] / sum * v[j][e];
      }
    }
    return o;
  }

  Rows operator()(const Rows& x, const Tensor& src) const {
    const std::size_t d = std::size_t(width), z = size(14, 1), h = size(8, 1);
    const Rows normal = normed(x);
    Rows moved = averaged(normal), v = affine(normal, 8), q, k, gated;
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t c = 0; c < d; ++c) moved[i][c] = silu(moved[i][c] + in[7][c] * normal[i][c]);
      for (double& value : v[i]) value = silu(value);
    }
    const Rows all = affine(moved, 10);
    for (const Row& row : all) {
      q.emplace_back(), k.emplace_back();
      for (std::size_t e = 0; e < z; ++e) {
        q.back().push_back(silu(row[d + e]) * at(14, 0, e) + at(15, 0, e));
        k.back().push_back(silu(row[d + e]) * at(14, 1, e) + at(15, 1, e));
      }
    }
    const Rows o = attended(q, k, v, src);
    for (std::size_t i = 0; i < x.size(); ++i) {
      gated.emplace_back();
      for (std::size_t e = 0; e < h; ++e) gated.back().push_back(o[i][e] * silu(all[i][d + z + e]));
    }
    Rows out = affine(gated, 12);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t c = 0; c < d; ++c) {
        const double update = silu(all[i][d + z + h + c] + out[i][c]);
        out[i][c] = x[i][c] + loops::sigmoid(all[i][c]) * (update - x[i][c]);
      }
    }
    return out;
  }
};

loops::Function mega_by_loops(const Form& form, const Tensor& src) {
  return [=](const std::vector<Tensor>& inputs) {
    const i64 B = inputs[0].size(0), N = inputs[0].size(1);
    const Equations equations(form, inputs);
    Row out;
    for (i64 b = 0; b < B; ++b) {
      Rows x = loops::rows_of(loops::item(inputs[0], b));
      if (!form.lengths.empty()) x.resize(std::size_t(form.lengths[std::size_t(b)]));
      const Tensor own = src.defined() ? src.slice(0, b, b + 1).packed() : src;
      for (const Row& row : equations(x, own)) out.insert(out.end(), row.begin(), row.end());
      out.resize(std::size_t((b + 1) * N * width), 0.0);
    }
    return Tensor::from(out, inputs[0].shape());
  };
}

void check_equations(const Form& form, i64 B, i64 N) {
  CAPTURE(form.spec());
  CAPTURE(form.causal);
  CAPTURE(N);
  const std::vector<Tensor> inputs = inputs_of(form, B, N);
  const Tensor src =
      form.attention == "csp" ? chosen(form.spec(), inputs, form.call()).at("src") : Tensor();
  loops::check(form.spec(), inputs, form.call(), mega_by_loops(form, src));
}

const char* const of_scores[] = {"softmax", "laplace", "relu2"};

TEST_SUITE("attention") {

TEST_CASE("mega: it is its equations in every form, and its gradients are their slopes") {
  for (const std::string attention : {"softmax", "laplace", "relu2", "csp"}) {
    for (const bool causal : {false, true}) {
      if (causal && attention == "csp") continue;
      for (const std::vector<i64>& lengths : {std::vector<i64>{}, {9, 4, 0}}) {
        // No chunks; whole ones; a last one that is short; each position by itself.
        for (const i64 chunk : {0, 3, 4, 1}) {
          const i64 own = attention == "csp" ? 0 : chunk;  // csp has none
          check_equations({attention, causal, own, chunk == 3 ? 2 : 0, lengths}, 3, 9);
        }
      }
      check_equations({attention, causal, 0, 1}, 1, 1);
    }
  }
}

TEST_CASE("mega: more queries than a tile has, and chunks of more") {
  if (few_on_device()) return;  // the kernel is compared with the definition there
  for (const std::string attention : of_scores) {
    for (const bool causal : {false, true}) {
      check_equations({attention, causal, 0, 0}, 1, 67);
      check_equations({attention, causal, 66, 5, {137, 100}}, 2, 137);
    }
  }
}

TEST_CASE("mega: every tile of queries draws dropout by a key of its own") {
  std::set<std::pair<std::uint64_t, std::uint32_t>> keys;
  for (i64 tile = 0; tile < 1000; ++tile) {
    const RandomKey key = attention_key({3, 4, 5}, tile);
    CHECK(key.step == 4);
    keys.emplace(key.seed, key.stream);
    // Purposes of other draws of the call are below and above those of dropout.
    const std::uint32_t purpose = key.stream >> 24;
    CHECK((tile == 0 ? purpose == 0 : 0x48 <= purpose && purpose < 0x80));
  }
  CHECK(keys.size() == 1000);
}

TEST_CASE("mega: a chunk of all positions is none, and a truncation behind all lags, too") {
  for (const std::string attention : of_scores) {
    const Form form{attention};
    const std::vector<Tensor> inputs = inputs_of(form, 2, 70);
    const Run whole = attended_run(form.spec(), inputs);
    for (const Form& same : {Form{attention, false, 70}, Form{attention, false, 0, 70}}) {
      CAPTURE(same.spec());
      const Run run = attended_run(same.spec(), inputs);
      check_close(run.outputs[0], whole.outputs[0]);
      for (std::size_t i = 0; i + 1 < inputs.size(); ++i) {
        CHECK(relative_error(run.gradients[i], whole.gradients[i]) <= tolerance::backward_f64);
      }
    }
  }
}

TEST_CASE("mega: the moving average crosses chunks, attention does not") {
  for (const std::string attention : of_scores) {
    const Form form{attention, true, 4, 3};
    std::vector<Tensor> inputs = inputs_of(form, 1, 12);
    const Tensor before = attended(form.spec(), inputs, causal());
    inputs[0] = inputs[0].clone();
    inputs[0].slice(1, 3, 4).copy_from(normal({1, 1, width}, 9));
    const Tensor after = attended(form.spec(), inputs, causal());
    // Lags 1 and 2 of position 3 reach 4 and 5, and these the rest of their chunk.
    CHECK(same_bits(after.slice(1, 0, 3), before.slice(1, 0, 3)));
    for (i64 i = 3; i < 8; ++i) {
      CHECK_FALSE(same_bits(after.slice(1, i, i + 1), before.slice(1, i, i + 1)));
    }
    check_close(after.slice(1, 8, 12), before.slice(1, 8, 12));
  }
}

TEST_CASE("mega: decoding in pieces of any size, across chunks, is the whole sequence") {
  for (const std::string attention : of_scores) {
    for (const Form& form : {Form{attention, true}, Form{attention, true, 5, 3},
                             Form{attention, true, 4, 40}, Form{attention, true, 1, 1}}) {
      CAPTURE(form.spec());
      constexpr i64 N = 23;
      const std::vector<Tensor> inputs = on_device(inputs_of(form, 2, N));
      const Tensor wanted = attended(form.spec(), inputs, causal());
      for (const std::vector<i64>& pieces :
           {std::vector<i64>(N, 1), {N}, {5, 5, 1, 4, 8}, {1, 13, 2, 7}}) {
        const AttentionSpec spec(form.spec());
        REQUIRE(can_decode(spec));
        const auto state = spec.mechanism().decode(spec, {.B = 2, .d = width}, DType::f64, N);
        i64 begin = 0;
        for (const i64 n : pieces) {
          std::vector<Tensor> given = inputs;
          given[0] = inputs[0].slice(1, begin, begin + n);
          const Tensor out = state->step(given).to(Device{});
          CHECK(relative_error(out, wanted.slice(1, begin, begin + n)) < 1e-12);
          begin += n;
        }
        CHECK(begin == N);
        CHECK(state->bytes() > 0);
      }
    }
  }
}

// A softmax is invariant to a common part of the keys. With beta[1] in the keys, its rounding
// errors would be a thousand times the rest, and in every gradient of the scores.
TEST_CASE("mega: a softmax does not see beta[1], and does not round by it") {
  const Form form{"softmax"};
  std::vector<Tensor> inputs = inputs_of(form, 2, 70);
  const Run plain = attended_run(form.spec(), inputs);
  for (const double value : loops::row_of(plain.gradients[15].slice(0, 1, 2))) CHECK(value == 0);
  inputs[15] = inputs[15].clone();
  inputs[15].slice(0, 1, 2).copy_from(normal({1, 3}, 9));
  CHECK(same_bits(attended(form.spec(), inputs), plain.outputs[0]));
  inputs[14] = normal({2, 3}, 8);
  for (i64 e = 0; e < 6; ++e) inputs[14].data<double>()[e] *= 0.01;
  inputs[15].fill(30);
  const std::vector<Tensor> rounded = in_f32(inputs);
  const Run narrow = attended_run(form.spec(), rounded),
            wide = attended_run(form.spec(), in_f64(rounded));
  for (const double error : gradient_errors(narrow, wide)) CHECK(error <= tolerance::backward_f32);
}

TEST_CASE("mega: csp permutes the values, by the options and choices of csp") {
  const std::string spec =
      "mega:key_width=3,value_width=5,states=2,attention=csp,csp_shift=custom,csp_groups=1";
  const std::vector<Tensor> inputs = inputs_of({"csp"}, 2, 7);
  AttentionCall call;
  CHECK_ERROR(attended(spec, inputs, call), "csp: shift=custom needs the choice shifts [5]");
  call.given["shifts"] = Tensor::from(std::vector<i64>{0, 1, 2, 3, 4}, {5});
  const Choices choices = chosen(spec, inputs, call);
  CHECK(choices.at("src").shape() == Shape{2, 7, 5});
  call.given["src"] = choices.at("src");
  CHECK(same_bits(attended(spec, inputs, call),
                  attended(spec, inputs, {.given = {{"shifts", call.given["shifts"]}}})));
}

TEST_CASE("mega: what it refuses") {
  const std::vector<Tensor> inputs = inputs_of({"softmax"}, 2, 9);
  const std::string sized = "mega:key_width=3,value_width=5,states=2";
  CHECK_ERROR(AttentionSpec("mega:chunk=-1"),
              "attention mega: chunk is a number in [0, 16777216], got '-1'");
  CHECK_ERROR(AttentionSpec("mega:chunk=2.5"),
              "attention mega: chunk must be a whole number, got 2.5");
  CHECK_ERROR(AttentionSpec("mega:truncation=-1"),
              "truncation is a number in [0, 16777216], got '-1'");
  CHECK_ERROR(AttentionSpec("mega:attention=sum"),
              "attention is one of softmax, laplace, relu2, csp, got 'sum'");
  CHECK_ERROR(AttentionSpec("mega:csp_group=3"),
              "attention mega: csp_group=3 has an effect only with attention=csp");
  CHECK_ERROR(AttentionSpec("mega:attention=csp,chunk=16"),
              "attention mega: chunk=16 has an effect only with attention!=csp");
  CHECK_ERROR(AttentionSpec("mega:attention=csp,csp_group=3,csp_groups=2"),
              "attention mega: csp_groups=2 has an effect only with csp_group=2");
  CHECK_ERROR(AttentionSpec("mega:attention=csp,csp_group=1,csp_order=ascending"),
              "attention mega: csp_order=ascending has an effect only with csp_group!=1");
  CHECK_ERROR(attended("mega:states=3", inputs),
              "ema_delta is [D, d, states] with states = 2, but the option says states=3");
  CHECK_ERROR(attended(sized, inputs, causal()),
              "mega: ema_delta must be [D, d, states] with D = 1; got");
  CHECK_ERROR(attended(sized + ",attention=csp", inputs_of({"csp", true}, 2, 9), causal()),
              "mega: has a causal form with attention!=csp alone");
  CHECK_FALSE(can_decode(AttentionSpec("mega:attention=csp")));
  for (const std::string attention : {"softmax", "laplace"}) {
    std::vector<Tensor> even = inputs;
    even[16] = normal(Shape{18}, 1);
    CHECK_ERROR(attended(sized + ",attention=" + attention, even),
                "mega: wanted a bias [2·max−1] with max >= 9, the positions that attend to each "
                "other; got [18]");
  }
  std::vector<Tensor> shorter = inputs;
  shorter[16] = normal(Shape{15}, 1);
  CHECK_ERROR(attended(sized, shorter), "rel_bias must be [2·N_max−1] with 2·N_max−1 = 17");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
