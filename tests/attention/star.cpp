// Properties of the Star-Transformer alone (mechanism page: ops/attention/star/star.h).
#include "ops/attention/star/ring.h"
#include "ops/pointwise/pointwise.h"
#include "tests/attention/loops.h"

namespace weft {
namespace {

using loops::Row;
using loops::Rows;

struct ShapedStar {
  std::size_t heads;
  bool closed;
};

Row leaky(Row x) {
  for (double& value : x) value = value > 0 ? value : 0.01 * value;
  return x;
}

// Rows h and s of step t, over the valid rows.
struct Step {
  const ShapedStar& shaped;
  std::vector<Rows> learnt{{}};  // by input; a vector is one row

  Step(const ShapedStar& shape, const std::vector<Tensor>& in, i64 t) : shaped(shape) {
    for (std::size_t i = 1; i < in.size(); ++i) {
      const Tensor own = loops::item(in[i], t);
      learnt.push_back(own.rank() == 1 ? Rows{loops::row_of(own)} : loops::rows_of(own));
    }
  }
  const Rows& matrix(int input) const { return learnt[std::size_t(input)]; }
  const Row& vector(int input) const { return learnt[std::size_t(input)][0]; }

  // The third `part` of the map that begins at this input.
  Row mapped(const Row& row, int input, std::size_t part) const {
    const Row all = loops::affine(row, matrix(input), vector(input + 1));
    const auto begin = all.begin() + std::ptrdiff_t(part * all.size() / 3);
    return {begin, begin + std::ptrdiff_t(all.size() / 3)};
  }
  Row outward(const Row& row, int input) const {
    return leaky(loops::affine(row, matrix(input), vector(input + 1)));
  }

  Rows satellites(const Rows& h, const Rows& e, const Row& s) const {
    const std::size_t n = h.size();
    Rows g, next;
    for (const Row& row : h) g.push_back(loops::normalised(row, vector(1), vector(2), 1e-6));
    for (std::size_t i = 0; i < n; ++i) {
      Rows keys, values;
      const auto see = [&](const Row& row) {
        keys.push_back(mapped(row, 3, 1)), values.push_back(mapped(row, 3, 2));
      };
      const auto neighbour = [&](std::size_t j, bool there) {
        see(g[j]);
        if (there || shaped.closed) return;
        std::ranges::fill(keys.back(), 0.0), std::ranges::fill(values.back(), 0.0);
      };
      neighbour((i + n - 1) % n, i > 0);
      see(g[i]);
      neighbour((i + 1) % n, i + 1 < n);
      see(e[i]), see(s);
      const Row q = mapped(g[i], 3, 0);
      const double temperature = 1 / std::sqrt(double(q.size()) / double(shaped.heads));
      next.push_back(outward(loops::attended(q, keys, values, shaped.heads, temperature), 5));
    }
    return next;
  }
  Row relay(const Row& s, const Rows& h) const {
    Rows keys{mapped(s, 7, 1)}, values{mapped(s, 7, 2)};
    for (const Row& row : h) keys.push_back(mapped(row, 7, 1)), values.push_back(mapped(row, 7, 2));
    const Row q = mapped(s, 7, 0);
    const double temperature = 1 / std::sqrt(double(q.size()) / double(shaped.heads));
    return outward(loops::attended(q, keys, values, shaped.heads, temperature), 9);
  }
};

loops::Function star_by_loops(const ShapedStar& shaped, const std::vector<i64>& lengths) {
  return [=](const std::vector<Tensor>& in) {
    const i64 B = in[0].size(0), N = in[0].size(1), d = in[0].size(2);
    std::vector<double> out;
    for (i64 b = 0; b < B; ++b) {
      Rows e = loops::rows_of(loops::item(in[0], b));
      if (!lengths.empty()) e.resize(std::size_t(lengths[std::size_t(b)]));
      Row s(std::size_t(d), 0.0);
      for (const Row& row : e) {
        for (std::size_t f = 0; f < s.size(); ++f) s[f] += row[f] / double(e.size());
      }
      Rows h = e;
      for (i64 t = 0; t < in[1].size(0); ++t) {
        const Step step(shaped, in, t);
        h = step.satellites(h, e, s);
        s = step.relay(s, h);
      }
      for (const Row& row : h) out.insert(out.end(), row.begin(), row.end());
      out.resize(std::size_t((b + 1) * N * d), 0.0);
    }
    return Tensor::from(out, {B, N, d});
  };
}

TEST_SUITE("attention") {

TEST_CASE("star: it is its equations, and its gradients are their slopes") {
  for (const i64 N : {1, 2, 3, 6}) {
    CAPTURE(N);
    for (const char* const ends : {"ring", "zero"}) {
      for (const std::string options : {":heads=2,head_width=3,steps=3,ends=", ":steps=1,ends="}) {
        const std::string spec = "star" + options + ends;
        const std::size_t heads = options.find("steps=1") == std::string::npos ? 2 : 4;
        for (const std::vector<i64>& lengths : {std::vector<i64>{}, {N, N / 2, 0}}) {
          loops::check(spec, loops::inputs_of(spec, {.B = 3, .N = N, .S = N, .d = 5}),
                       with_lengths(lengths),
                       star_by_loops({heads, ends == std::string("ring")}, lengths));
        }
      }
    }
  }
}

// Every edge of the lists is in the transpose, at its rank, and there are no other edges.
TEST_CASE("star: the lists of a ring and their transpose name the same edges") {
  for (const bool closed : {false, true}) {
    for (i64 n = 0; n <= 5; ++n) {
      const Ring ring{5, n, closed};
      std::vector<std::array<i64, 3>> edges, out;  // row, rank, key
      for (i64 row = 0; row < 5; ++row) {
        i64 count = 0;
        ring.each_edge(row, [&](i64 rank, i64 key, i64) {
          edges.push_back({row, rank, key});
          ++count;
        });
        CHECK(count == ring.edges(row));
      }
      for (i64 key = 0; key < Ring::keys(5, closed); ++key) {
        i64 count = 0;
        ring.each_out_edge(key, [&](i64 row, i64 rank) {
          out.push_back({row, rank, key});
          ++count;
        });
        CHECK(count == ring.out_edges(key));
      }
      std::ranges::sort(out);
      CHECK(out == edges);
    }
  }
}

TEST_CASE("star: without the relay a step reaches one position further") {
  const i64 N = 12;
  for (const i64 steps : {1, 2, 3}) {
    CAPTURE(steps);
    const std::string spec = "star:ends=zero,steps=" + std::to_string(steps);
    std::vector<Tensor> inputs = loops::inputs_of(spec, {.B = 1, .N = N, .S = N, .d = 8});
    inputs[9].fill(0), inputs[10].fill(0);  // star_out and its bias: s = 0 behind the first step
    const Tensor out = attended(spec, inputs);
    // Two neighbours change by opposite numbers, which leave the mean unchanged.
    const Tensor x = inputs[0].clone();
    const Tensor change = normal({1, 1, 8}, 3);
    x.slice(1, 5, 6).copy_from(added(x.slice(1, 5, 6), change));
    x.slice(1, 6, 7).copy_from(sub(x.slice(1, 6, 7), change).value());
    inputs[0] = x;
    const Tensor changed = attended(spec, inputs);
    for (i64 i = 0; i < N; ++i) {
      CAPTURE(i);
      const bool reached = i >= 5 - steps && i <= 6 + steps;
      const double apart = relative_error(changed.slice(1, i, i + 1), out.slice(1, i, i + 1));
      CHECK((reached ? apart > 1e-9 : apart < 1e-12));
    }
  }
}

TEST_CASE("star: a ring turned is the same ring") {
  const i64 N = 9;
  const std::vector<Tensor> inputs = loops::inputs_of("star", {.B = 2, .N = N, .S = N, .d = 8});
  const auto turned = [&](const Tensor& x) {
    const Tensor y = x.clone();
    y.slice(1, 0, 4).copy_from(x.slice(1, 5, 9));
    y.slice(1, 4, 9).copy_from(x.slice(1, 0, 5));
    return y;
  };
  std::vector<Tensor> other = inputs;
  other[0] = turned(inputs[0]);
  check_close(attended("star", other), turned(attended("star", inputs)));
  CHECK(relative_error(attended("star:ends=zero", other),
                       turned(attended("star:ends=zero", inputs))) > 1e-3);
}

TEST_CASE("star: nothing flows into the relay's map of the last step, nor its keys' biases") {
  for (const std::string spec : {"star:steps=1", "star:steps=2"}) {
    CAPTURE(spec);
    const std::vector<Tensor> inputs = loops::inputs_of(spec, {.B = 2, .N = 5, .S = 5, .d = 8});
    const i64 last = inputs[1].size(0) - 1;
    for (const bool kernel : {true, false}) {
      CAPTURE(kernel);
      const Run run = kernel ? attended_run(spec, inputs) : defined_run(spec, inputs);
      for (std::size_t input = 7; input <= 10; ++input) {
        REQUIRE(run.gradients[input].defined());
        for (const double g : loops::row_of(loops::item(run.gradients[input], last))) {
          CHECK(g == 0);
        }
      }
      const Row biases = loops::row_of(loops::item(run.gradients[8], 0));
      const double rounding = kernel ? 0 : 1e-15;  // the definition adds products that cancel
      for (std::size_t e = 8; e < 16; ++e) CHECK(std::abs(biases[e]) <= rounding);
    }
  }
}

TEST_CASE("star: what it refuses") {
  const std::vector<Tensor> inputs = loops::inputs_of("star", {.B = 1, .N = 4, .S = 4, .d = 8});
  CHECK_ERROR(attended("star:heads=3", inputs),
              "star: ring_qkv must be [steps, d, 3·heads·head_width] with 3·heads·head_width = 18");
  CHECK_ERROR(attended("star:steps=3", inputs),
              "star: norm_gain is [steps, d] with steps = 2, but the option says steps=3");
  CHECK_ERROR(attended("star:ends=open", inputs), "star: ends is one of ring, zero");
  CHECK_ERROR(attended("star", inputs, causal()), "star: has no causal form");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
