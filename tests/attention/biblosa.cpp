// Properties of Bi-BloSAN alone (mechanism page: ops/attention/biblosa/biblosa.h), and for
// directed attention, which it is made of (ops/attention/biblosa/directed.h).
#include <limits>

#include "ops/attention/biblosa/directed.h"
#include "ops/views/views.h"
#include "tests/attention/loops.h"

namespace weft {
namespace {

using loops::Row;
using loops::Rows;

// s of rows h whose scores are p_j + g_i.
Rows directed(const Rows& p, const Rows& g, const Rows& h, bool later) {
  const std::size_t n = h.size();
  Rows s;
  for (std::size_t i = 0; i < n; ++i) {
    s.emplace_back(h[i].size(), 0.0);
    for (std::size_t f = 0; f < h[i].size(); ++f) {
      Row z;
      const std::size_t begin = later ? i + 1 : 0, end = later ? n : i;
      for (std::size_t j = begin; j < end; ++j) z.push_back(5 * std::tanh((p[j][f] + g[i][f]) / 5));
      z = loops::softmax(z);
      for (std::size_t j = begin; j < end; ++j) s[i][f] += z[j - begin] * h[j][f];
    }
  }
  return s;
}

struct ShapedBiblosa {
  std::size_t r;
  std::vector<bool> later;  // of each direction
  double (*act)(double);
};

double elu(double x) { return x > 0 ? x : std::expm1(x); }
double relu(double x) { return std::max(x, 0.0); }
double linear(double x) { return x; }

// Direction t of the rows of one item.
Rows in_direction(const ShapedBiblosa& shaped, const std::vector<Tensor>& in, i64 t,
                  const Rows& x) {
  const auto map = [&](const Row& row, int which) {
    const auto at = std::size_t(1 + 2 * which);
    return loops::affine(row, loops::rows_of(loops::item(in[at], t)),
                         loops::row_of(loops::item(in[at + 1], t)));
  };
  const auto act = [&](Row row) {
    for (double& value : row) value = shaped.act(value);
    return row;
  };
  const bool later = shaped.later[std::size_t(t)];
  const auto attention = [&](const Rows& h, int which) {
    const auto at = std::size_t(1 + 2 * which);
    const Rows weight = loops::rows_of(loops::item(in[at], t));
    Row bias = loops::row_of(loops::item(in[at + 1], t));
    const std::size_t C = bias.size();
    bias.resize(2 * C, 0.0);
    Rows p, g;
    for (const Row& row : h) {
      const Row both = loops::affine(row, weight, bias);
      p.emplace_back(both.begin(), both.begin() + std::ptrdiff_t(C));
      g.emplace_back(both.begin() + std::ptrdiff_t(C), both.end());
    }
    return directed(p, g, h, later);
  };
  Rows h, s, m, out;
  for (const Row& row : x) h.push_back(act(map(row, 0)));
  for (std::size_t i = 0; i < h.size(); i += shaped.r) {
    const auto first = h.begin() + std::ptrdiff_t(i);
    const Rows inside =
        attention({first, h.begin() + std::ptrdiff_t(std::min(i + shaped.r, h.size()))}, 1);
    Rows logits;
    for (const Row& row : inside) logits.push_back(map(row, 2));
    Row v(h[0].size(), 0.0);
    for (std::size_t f = 0; f < v.size(); ++f) {
      Row z;
      for (const Row& row : logits) z.push_back(row[f]);
      z = loops::softmax(z);
      for (std::size_t j = 0; j < z.size(); ++j) v[f] += z[j] * inside[j][f];
    }
    s.insert(s.end(), inside.begin(), inside.end());
    m.push_back(act(map(v, 3)));
  }
  const Rows a = m.empty() ? Rows{} : attention(m, 4);
  for (std::size_t i = 0; i < h.size(); ++i) {
    const std::size_t b = i / shaped.r, C = h[i].size();
    Row both = m[b];
    both.insert(both.end(), a[b].begin(), a[b].end());
    const Row gate = map(both, 5);
    Row all = h[i];
    all.insert(all.end(), s[i].begin(), s[i].end());
    for (std::size_t f = 0; f < C; ++f) {
      const double g = loops::sigmoid(gate[f]);
      all.push_back(g * m[b][f] + (1 - g) * a[b][f]);
    }
    const Row last = map(all, 6);
    Row row;
    for (std::size_t f = 0; f < C; ++f) {
      const double g = loops::sigmoid(last[C + f]);
      row.push_back(g * shaped.act(last[f]) + (1 - g) * h[i][f]);
    }
    out.push_back(row);
  }
  return out;
}

loops::Function biblosa_by_loops(const ShapedBiblosa& shaped, const std::vector<i64>& lengths) {
  return [=](const std::vector<Tensor>& in) {
    const i64 B = in[0].size(0), N = in[0].size(1), C = in[1].size(2);
    const auto D = i64(shaped.later.size());
    std::vector<double> out;
    for (i64 b = 0; b < B; ++b) {
      Rows x = loops::rows_of(loops::item(in[0], b));
      if (!lengths.empty()) x.resize(std::size_t(lengths[std::size_t(b)]));
      std::vector<Rows> of;
      for (i64 t = 0; t < D; ++t) of.push_back(in_direction(shaped, in, t, x));
      for (std::size_t i = 0; i < x.size(); ++i) {
        for (const Rows& rows : of) out.insert(out.end(), rows[i].begin(), rows[i].end());
      }
      out.resize(std::size_t((b + 1) * N * D * C), 0.0);
    }
    return Tensor::from(out, {B, N, D * C});
  };
}

// Inputs whose biases are numbers other than 0.
std::vector<Tensor> biased(const std::string& spec, const AttentionSizes& sizes) {
  std::vector<Tensor> inputs = loops::inputs_of(spec, sizes);
  for (std::size_t i = 2; i < inputs.size(); i += 2) inputs[i] = normal(inputs[i].shape(), 70 + i);
  return inputs;
}

Differentiable attention_of(i64 size, bool later, const Tensor& lengths = {}) {
  return [=](std::span<const Variable> in) {
    return std::vector{
        directed_attention(in[0], in[1], size, later, lengths.to(in[0].value().device()))};
  };
}

TEST_SUITE("attention") {

TEST_CASE("biblosa: it is its equations, and its gradients are their slopes") {
  const AttentionSizes sizes{.B = 3, .N = 11, .S = 11, .d = 3};
  for (const std::vector<i64>& lengths : {std::vector<i64>{}, {11, 7, 0}}) {
    const AttentionCall call = with_lengths(lengths);
    const auto check = [&](const std::string& spec, const ShapedBiblosa& shaped) {
      CAPTURE(spec);
      loops::check(spec, biased(spec, sizes), call, biblosa_by_loops(shaped, lengths));
    };
    check("biblosa", {5, {false, true}, elu});
    check("biblosa:direction=forward,block=4,width=5,activation=linear", {4, {false}, linear});
    check("biblosa:direction=backward,block=3,activation=relu", {3, {true}, relu});
    check("biblosa:block=1,width=2", {1, {false, true}, elu});
    check("biblosa:block=50,width=2", {50, {false, true}, elu});
  }
}

TEST_CASE("biblosa: directed attention is its equations, at any size of block and of scores") {
  const i64 B = 2, N = 23, C = 19;
  const std::vector<i64> lengths{N, 14};
  const Tensor counts = lengths_of(lengths);
  for (const double size : {1.0, 30.0}) {
    Row numbers = loops::row_of(normal({B, N, 2 * C}, 1));
    for (double& value : numbers) value *= size;
    const Tensor scores = Tensor::from(numbers, {B, N, 2 * C}), h = normal({B, N, C}, 2);
    for (const i64 block : {1, 2, 6, 23, 40}) {
      for (const bool later : {false, true}) {
        CAPTURE(block);
        CAPTURE(later);
        std::vector<double> wanted;
        for (i64 b = 0; b < B; ++b) {
          const Tensor own = loops::item(scores, b);
          const Rows p = loops::rows_of(own.slice(1, 0, C)),
                     g = loops::rows_of(own.slice(1, C, 2 * C));
          const Rows rows = loops::rows_of(loops::item(h, b));
          for (i64 i = 0; i < lengths[std::size_t(b)]; i += block) {
            const i64 end = std::min(i + block, lengths[std::size_t(b)]);
            const auto cut = [&](const Rows& all) {
              return Rows{all.begin() + i, all.begin() + end};
            };
            for (const Row& row : directed(cut(p), cut(g), cut(rows), later)) {
              wanted.insert(wanted.end(), row.begin(), row.end());
            }
          }
          wanted.resize(std::size_t((b + 1) * N * C), 0.0);
        }
        const Run got = run(attention_of(block, later, counts), {scores, h});
        check_close(got.outputs[0], Tensor::from(wanted, {B, N, C}));
        const Run far = run(attention_of(block, later, counts), {scattered(scores), scattered(h)});
        check_close(far, got);
      }
    }
  }
}

TEST_CASE("biblosa: directed attention against central differences") {
  for (const bool later : {false, true}) {
    for (const i64 block : {3, 9}) {
      const std::vector<Tensor> inputs{normal({2, 9, 6}, 3), normal({2, 9, 3}, 4)};
      CHECK_GRADIENTS(attention_of(block, later), inputs);
      const Tensor lengths = lengths_of({8, 0});
      CHECK_GRADIENTS(attention_of(block, later, lengths), inputs);
    }
  }
}

// p and g that cancel, and scores beyond the range of exponentials.
TEST_CASE("biblosa: scores far from zero reach the ends of the tanh") {
  for (const DType type : {DType::f32, DType::f64}) {
    for (const double large : {60.0, 150.0, 1e4, 1e30}) {
      CAPTURE(large);
      // Of the first two keys one has a score of 5, the other of −5; h is 1 and 0.
      const Tensor scores = Tensor::from(std::vector<double>{large, 0, -large, 0, 0, 0}, {1, 3, 2});
      const Tensor h = Tensor::from(std::vector<double>{1, 0, 7}, {1, 3, 1});
      const Run got = run(attention_of(3, false), {scores.to(type), h.to(type)});
      check_finite(got);
      const double share = 1 / (1 + std::exp(-10.0));
      const double found = got.outputs[0].to(DType::f64).to_vector<double>()[2];
      CHECK(std::abs(found - share) <= (type == DType::f32 ? 1e-6 : 1e-9));
      if (large > 150) continue;
      const Tensor against =
          Tensor::from(std::vector<double>{large, 0, large + 1, 0, 0, -large}, {1, 3, 2});
      const Run cancelled = run(attention_of(3, false), {against.to(type), h.to(type)});
      const double first = 1 / (1 + std::exp(5 * std::tanh(0.2)));
      const double other = cancelled.outputs[0].to(DType::f64).to_vector<double>()[2];
      CHECK(std::abs(other - first) <= (type == DType::f32 ? 1e-4 : 1e-12));
    }
  }
}

TEST_CASE("biblosa: a NaN reaches the positions that see it, in its feature") {
  for (const std::size_t input : {0, 1}) {
    std::vector<Tensor> inputs{normal({1, 8, 4}, 3), normal({1, 8, 2}, 4)};
    inputs[input].view<double, 3>()(0, 1, 0) = not_a_number;
    const Run got = run(attention_of(4, false), inputs);
    for (i64 i = 0; i < 8; ++i) {
      for (i64 f = 0; f < 2; ++f) {
        const bool seen = f == 0 && (i == 2 || i == 3);
        CHECK(std::isnan(got.outputs[0].view<double, 3>()(0, i, f)) == seen);
      }
    }
  }
}

TEST_CASE("biblosa: both directions are each of them, side by side") {
  const AttentionSizes sizes{.B = 2, .N = 13, .S = 13, .d = 4};
  const std::vector<Tensor> inputs = biased("biblosa", sizes);
  const Tensor both = attended("biblosa", inputs);
  for (const i64 t : {0, 1}) {
    std::vector<Tensor> one{inputs[0]};
    for (std::size_t i = 1; i < inputs.size(); ++i) one.push_back(inputs[i].slice(0, t, t + 1));
    const char* const spec = t == 0 ? "biblosa:direction=forward" : "biblosa:direction=backward";
    check_close(both.slice(2, 4 * t, 4 * t + 4), attended(spec, one));
  }
}

TEST_CASE("biblosa: what it refuses") {
  const std::vector<Tensor> inputs = biased("biblosa", {.B = 1, .N = 4, .S = 4, .d = 3});
  CHECK_ERROR(attended("biblosa:direction=forward", inputs),
              "biblosa: w_map must be [D, d, width] with D = 1; got");
  CHECK_ERROR(attended("biblosa:width=4", inputs),
              "biblosa: w_map is [D, d, width] with width = 3, but the option says width=4");
  CHECK_ERROR(attended("biblosa:block=0", inputs), "biblosa: block is a number in [1, ");
  CHECK_ERROR(attended("biblosa", inputs, causal()), "biblosa: has no causal form");
  const Tensor h = normal({1, 4, 3}, 1);
  CHECK_ERROR(directed_attention(h, h, 2, false),
              "directed_attention: wanted h [B, N, C] and scores [B, N, 2C] in blocks of at least "
              "one position, got [1,4,3] and [1,4,3] in blocks of 2");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
