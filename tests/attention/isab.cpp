// Properties of ISAB alone (mechanism page: ops/attention/isab/isab.h).
#include "autograd/tape.h"
#include "ops/linear/linear.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "tests/attention/loops.h"

namespace weft {
namespace {

using loops::Row;
using loops::Rows;

struct ShapedIsab {
  std::size_t heads;
  bool norms;
  double temperature;
};

// MAB_a(X, Y).
Rows mab(const ShapedIsab& s, const std::vector<Tensor>& in, int a, const Rows& X, const Rows& Y) {
  const auto map = [&](const Row& row, int which) {
    const auto at = std::size_t(4 * a + which);
    return loops::affine(row, loops::rows_of(in[2 + at]), loops::row_of(in[10 + at]));
  };
  const auto norm = [&](const Row& row, i64 number) {
    if (!s.norms) return row;
    return loops::normalised(row, loops::rows_of(in[18])[std::size_t(number)],
                             loops::rows_of(in[19])[std::size_t(number)], 1e-5);
  };
  Rows keys, values, out;
  for (const Row& y : Y) keys.push_back(map(y, 1)), values.push_back(map(y, 2));
  for (const Row& x : X) {
    Row o = map(x, 0);
    const Row found = loops::attended(o, keys, values, s.heads, s.temperature);
    for (std::size_t e = 0; e < o.size(); ++e) o[e] += found[e];
    o = norm(o, 2 * a);
    const Row last = map(o, 3);
    for (std::size_t e = 0; e < o.size(); ++e) o[e] += std::max(last[e], 0.0);
    out.push_back(norm(o, 2 * a + 1));
  }
  return out;
}

loops::Function isab_by_loops(const ShapedIsab& s, const std::vector<i64>& lengths) {
  return [=](const std::vector<Tensor>& in) {
    const i64 B = in[0].size(0), N = in[0].size(1), C = in[1].size(1);
    std::vector<double> out;
    for (i64 b = 0; b < B; ++b) {
      Rows x = loops::rows_of(loops::item(in[0], b));
      if (!lengths.empty()) x.resize(std::size_t(lengths[std::size_t(b)]));
      const Rows points = mab(s, in, 0, loops::rows_of(in[1]), x);
      for (const Row& row : mab(s, in, 1, x, points)) out.insert(out.end(), row.begin(), row.end());
      out.resize(std::size_t((b + 1) * N * C), 0.0);
    }
    return Tensor::from(out, {B, N, C});
  };
}

const AttentionSizes small{.B = 3, .N = 7, .S = 7, .d = 6};

// x with its items of the set in another order.
Tensor reordered(const Tensor& x, int axis) {
  const Tensor y = x.clone();
  const i64 n = x.size(axis);
  for (i64 i = 0; i < n; ++i) {
    const i64 to = (3 * i + 2) % n;  // 3 and the sizes here have no common factor
    y.slice(axis, to, to + 1).copy_from(x.slice(axis, i, i + 1));
  }
  return y;
}

TEST_SUITE("attention") {

TEST_CASE("isab: it is its equations, and its gradients are their slopes") {
  for (const std::vector<i64>& lengths : {std::vector<i64>{}, {7, 3, 0}}) {
    const AttentionCall call = with_lengths(lengths);
    const std::string plain = "isab:heads=2,points=3", wide = "isab:heads=4,points=5,width=8";
    loops::check(plain, loops::inputs_of(plain, small), call,
                 isab_by_loops({2, false, 1 / std::sqrt(6.0)}, lengths));
    loops::check(wide + ",norm=1", loops::inputs_of(wide + ",norm=1", small), call,
                 isab_by_loops({4, true, 1 / std::sqrt(8.0)}, lengths));
    loops::check(wide + ",temperature=0.9", loops::inputs_of(wide, small), call,
                 isab_by_loops({4, false, 0.9}, lengths));
  }
}

TEST_CASE(
    "isab: the order of the items moves the output along, that of the points changes nothing") {
  const std::string spec = "isab:heads=2,points=5,norm=1";
  const std::vector<Tensor> inputs = loops::inputs_of(spec, small);
  const Run before = attended_run(spec, inputs);
  std::vector<Tensor> moved = inputs;
  moved[0] = reordered(inputs[0], 1);
  check_close(attended(spec, moved), reordered(before.outputs[0], 1));
  moved = inputs;
  moved[1] = reordered(inputs[1], 0);
  Run wanted = before;
  wanted.gradients[1] = reordered(before.gradients[1], 0);
  check_close(attended_run(spec, moved), wanted);
}

// Learns the maximum of a set of numbers.
struct Sets {
  static constexpr i64 count = 24, size = 5;
  Tensor x, largest;

  explicit Sets(std::uint64_t seed)
      : x(random_uniform({count, size, 1}, DType::f64, seed, 0, 1)),
        largest(Tensor::zeros({count, 1}, DType::f64)) {
    for (i64 b = 0; b < count; ++b) {
      const Row row = loops::row_of(x.slice(0, b, b + 1));
      largest.data<double>()[b] = *std::max_element(row.begin(), row.end());
    }
  }
  // The error of the best constant.
  double variance() const {
    const Row values = loops::row_of(largest);
    double mean = 0, square = 0;
    for (const double value : values) mean += value / double(count);
    for (const double value : values) square += (value - mean) * (value - mean) / double(count);
    return square;
  }
};

const char* const set_model = "isab:heads=2,points=4,width=8";

// The block, the mean over the set, and a linear map.
Variable predicted(std::span<const Variable> parameters, const Tensor& x) {
  std::vector<Variable> inputs{x.to(tested_device())};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end() - 2);
  const Variable pooled = mean(attend(AttentionSpec(set_model), {}, inputs).out, 1);
  return linear(pooled, parameters[parameters.size() - 2], parameters.back());
}

Variable error_of(const Variable& prediction, const Sets& sets) {
  const Variable difference = sub(prediction, sets.largest.to(tested_device()));
  return mean(mul(difference, difference));
}

TEST_CASE("isab: a set model learns the maximum, in whatever order the numbers come" *
          not_sanitized()) {
  if (few_on_device()) return;  // another case covers its computation there
  std::vector<Tensor> parameters =
      loops::inputs_of(set_model, {.B = Sets::count, .N = Sets::size, .S = Sets::size, .d = 1});
  parameters.erase(parameters.begin());
  parameters.push_back(normal({8, 1}, 7));
  parameters.push_back(Tensor::zeros({1}, DType::f64));
  // Adam (D. P. Kingma, J. Ba, ICLR 2015).
  std::vector<Row> first, second;
  for (const Tensor& x : parameters) {
    first.emplace_back(std::size_t(x.count()), 0.0);
    second.emplace_back(std::size_t(x.count()), 0.0);
  }
  const auto on_the_device = [&] {
    std::vector<Variable> leaves;
    for (const Tensor& x : on_device(parameters)) leaves.push_back(Variable::leaf(x));
    return leaves;
  };
  for (int step = 1; step <= 1000; ++step) {
    const std::vector<Variable> leaves = on_the_device();
    const Sets sets(std::uint64_t(1000 + step));
    Tape tape;
    tape.backward(error_of(predicted(leaves, sets.x), sets));
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const Row g = loops::row_of(leaves[i].gradient().to(Device{}));
      double* const x = parameters[i].data<double>();
      for (std::size_t e = 0; e < g.size(); ++e) {
        first[i][e] = 0.9 * first[i][e] + 0.1 * g[e];
        second[i][e] = 0.99 * second[i][e] + 0.01 * g[e] * g[e];
        const double mean = first[i][e] / (1 - std::pow(0.9, step));
        x[e] -= 0.01 * mean / (std::sqrt(second[i][e] / (1 - std::pow(0.99, step))) + 1e-8);
      }
    }
  }
  const Sets unseen(1);
  const std::vector<Variable> leaves = on_the_device();
  const Tape::Pause pause;
  const Tensor found = predicted(leaves, unseen.x).value().to(Device{});
  CHECK(error_of(found.to(tested_device()), unseen).value().item() < unseen.variance() / 4);
  check_close(predicted(leaves, reordered(unseen.x, 1)).value().to(Device{}), found);
}

TEST_CASE("isab: what it refuses") {
  const std::vector<Tensor> inputs = loops::inputs_of("isab:heads=2", small);
  CHECK_ERROR(attended("isab", inputs), "isab: wanted a width of whole heads, got 6 in 4 heads");
  CHECK_ERROR(attended("isab:heads=2,points=5", inputs),
              "isab: inducing is [points, width] with points = 16, but the option says points=5");
  CHECK_ERROR(attended("isab:heads=2,norm=1", inputs), "isab: the input norm_gain is missing");
  CHECK_ERROR(attended("isab:heads=2", inputs, causal()), "isab: has no causal form");
  std::vector<Tensor> uneven = inputs;
  uneven[3] = normal({5, 6}, 1);
  CHECK_ERROR(attended("isab:heads=2", uneven), "isab: wk0 is [d, width] with d = 5, but d = 6");
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
