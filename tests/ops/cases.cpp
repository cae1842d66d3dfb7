#include "tests/ops/cases.h"

#include "ops/blocks/blocks.h"
#include "ops/cast/cast.h"
#include "ops/conv1d/conv1d.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/cumulative_sum/cumulative_sum.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"
#include "ops/feed_forward/feed_forward.h"
#include "ops/gather/gather.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/linear/linear.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul.h"
#include "ops/moving_average/moving_average.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/rotary/rotary.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "runtime/random.h"
#include "tests/check.h"

namespace weft {
namespace {

using Inputs = std::span<const Variable>;
using Shapes = std::vector<Shape>;

class Cases {
 public:
  // f takes the inputs and gives one result or several.
  template <class F>
  void add(const std::string& name, const F& f, const std::vector<Tensor>& inputs) {
    std::string shapes;
    for (const Tensor& input : inputs) shapes += fmt::format(" {}", input.shape());
    const auto several = [f](Inputs in) {
      if constexpr (std::is_same_v<decltype(f(in)), Variable>) {
        return std::vector{f(in)};
      } else {
        return f(in);
      }
    };
    list.push_back({name + shapes, several, inputs});
  }

  // Normal inputs of these shapes.
  template <class F>
  void add(const std::string& name, const F& f, const Shapes& shapes) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : shapes) inputs.push_back(random_normal(shape, DType::f64, seed_++));
    add(name, f, inputs);
  }

  std::vector<OpCase> list;

 private:
  std::uint64_t seed_ = 100;
};

// At least `gap` away from zero, where the function has a kink.
Tensor away_from_zero(const Shape& shape, double gap) {
  std::vector<double> values = random_normal(shape, DType::f64, 7).to_vector<double>();
  for (double& x : values) x += x < 0 ? -gap : gap;
  return Tensor::from(values, shape);
}

Variable plus(Inputs in) { return add(in[0], in[1]); }
Variable minus(Inputs in) { return sub(in[0], in[1]); }
Variable times(Inputs in) { return mul(in[0], in[1]); }
Variable quotient(Inputs in) { return div(in[0], in[1]); }
Variable larger(Inputs in) { return maximum(in[0], in[1]); }
Variable dropped(Inputs in) { return dropout(in[0], 0.3, {5, 6, 7}); }
Variable product(Inputs in) { return matmul(in[0], in[1]); }
Variable looked_up(Inputs in) { return embedding(in[0], in[1].value()); }
Variable entropy(Inputs in) { return cross_entropy(in[0], in[1].value()); }
Variable fused_entropy(Inputs in) { return linear_cross_entropy(in[0], in[1], in[2].value()); }
Variable affine(Inputs in) { return linear(in[0], in[1], in.size() > 2 ? in[2] : Variable{}); }

auto cumulated(int axis, bool reverse) {
  return [=](Inputs in) { return cumulative_sum(in[0], axis, reverse); };
}
auto gathered(int axis) {
  return [=](Inputs in) { return gather(in[0], axis, in[1].value()); };
}
// x and indices along the axis.
std::vector<Tensor> to_gather(const Shape& x, int axis, const Shape& index) {
  return {random_normal(x, DType::f64, 43), random_integers(index, x[axis], 44)};
}

// Blocks of x [B, N, H, E], whole and cut to lengths.
void add_blocks(Cases& cases, const Shape& x, i64 size) {
  const i64 B = x[0], N = x[1];
  std::vector<i64> short_ones;
  for (i64 b = 0; b < B; ++b) short_ones.push_back(N - b * N / B);
  for (const Tensor& lengths : {Tensor(), Tensor::from(short_ones, {B})}) {
    const auto at = [=](Inputs in) { return lengths.to(in[0].value().device()); };
    const auto average = [=](Inputs in) { return block_mean(in[0], size, at(in)); };
    const auto largest = [=](Inputs in) { return block_maximum(in[0], size, at(in)); };
    const auto added = [=](Inputs in) { return add_to_blocks(in[0], in[1], size, at(in)); };
    cases.add("block_mean", average, Shapes{x});
    cases.add("block_maximum", largest, Shapes{x});
    const auto weighted = [=](Inputs in) {
      return block_weighted_mean(in[0], in[1], size, at(in));
    };
    cases.add("block_weighted_mean", weighted, Shapes{x, x});
    cases.add("add_to_blocks", added, Shapes{x, {B, (N + size - 1) / size, x[2], x[3]}});
  }
}

void add_pointwise(Cases& cases) {
  for (const Shapes& shapes :
       {Shapes{{5, 7}, {5, 7}}, Shapes{{2, 3, 5}, {5}}, Shapes{{5}, {2, 3, 5}},
        Shapes{{2, 3, 5}, {3, 5}}, Shapes{{2, 3, 5}, {2, 1, 5}}, Shapes{{2, 3, 5}, {2, 3, 1}},
        Shapes{{2, 1, 5}, {3, 1}}, Shapes{{2, 3, 5}, {1, 3, 1}}, Shapes{{4, 1}, {1, 6}},
        Shapes{{3, 4}, {}}, Shapes{{}, {}}, Shapes{{1}, {1, 1, 1}}, Shapes{{17}, {1}},
        Shapes{{2, 3, 2, 3}, {3, 1, 3}}, Shapes{{1, 3, 5}, {1, 5}},
        Shapes{{2, 1, 3, 1, 2}, {1, 4, 1, 5, 1}}}) {
    cases.add("add", plus, shapes);
    cases.add("sub", minus, shapes);
    cases.add("mul", times, shapes);
    cases.add("div", quotient,
              std::vector{random_normal(shapes[0], DType::f64, 6), away_from_zero(shapes[1], 0.5)});
    cases.add("maximum", larger, shapes);
  }
  const std::vector<std::pair<const char*, Variable (*)(const Variable&)>> functions{
      {"sigmoid", sigmoid}, {"tanh", tanh}, {"exp", exp},           {"silu", silu},
      {"gelu", gelu},       {"relu", relu}, {"gelu_erf", gelu_erf}, {"leaky_relu", leaky_relu},
      {"elu", elu},         {"normal_cdf", normal_cdf}};
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 5}, Shape{2, 3, 37}}) {
    for (const auto& [name, function] : functions) {
      const auto f = [function = function](Inputs in) { return function(in[0]); };
      cases.add(name, f, std::vector{away_from_zero(shape, 0.01)});
    }
    const auto logarithm = [](Inputs in) { return log(in[0]); };
    cases.add("log", logarithm, std::vector{random_uniform(shape, DType::f64, 7, 0.2, 5)});
    const auto root = [](Inputs in) { return sqrt(in[0]); };
    cases.add("sqrt", root, std::vector{random_uniform(shape, DType::f64, 7, 0.2, 5)});
    const auto there_and_back = [](Inputs in) {
      return cast(cast(in[0], DType::f64), in[0].value().dtype());
    };
    cases.add("cast", there_and_back, Shapes{shape});
    const auto scaled = [](Inputs in) { return scale(in[0], -2.75); };
    cases.add("scale", scaled, Shapes{shape});
    cases.add("dropout", dropped, Shapes{shape});
  }
}

void add_reductions(Cases& cases) {
  const auto total = [](Inputs in) { return sum(in[0]); };
  const auto average = [](Inputs in) { return mean(in[0]); };
  const auto probabilities = [](Inputs in) { return softmax(in[0]); };
  const auto normaliser = [](Inputs in) { return log_sum_exp(in[0]); };
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 5}, Shape{2, 3, 37}, Shape{2, 1, 3, 4}}) {
    cases.add("sum", total, Shapes{shape});
    cases.add("mean", average, Shapes{shape});
    for (int axis = -shape.rank(); axis < shape.rank(); ++axis) {
      const auto sum_along = [axis](Inputs in) { return sum(in[0], axis); };
      const auto mean_along = [axis](Inputs in) { return mean(in[0], axis); };
      cases.add(fmt::format("sum {}", axis), sum_along, Shapes{shape});
      cases.add(fmt::format("mean {}", axis), mean_along, Shapes{shape});
      cases.add(fmt::format("cumulative_sum {}", axis), cumulated(axis, axis % 2 == 0),
                Shapes{shape});
    }
  }
  for (const Shape& shape : {Shape{1}, Shape{5}, Shape{3, 1}, Shape{4, 27}, Shape{2, 3, 37}}) {
    cases.add("softmax", probabilities, Shapes{shape});
    cases.add("log_sum_exp", normaliser, Shapes{shape});
    Shape rows;
    for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows.push_back(shape[axis]);
    const Tensor targets = random_integers(rows, shape.back(), 32);
    cases.add("cross_entropy", entropy, std::vector{random_normal(shape, DType::f64, 31), targets});
  }
}

void add_all_blocks(Cases& cases) {
  add_blocks(cases, {2, 7, 2, 3}, 3);
  add_blocks(cases, {1, 5, 1, 1}, 1);
  add_blocks(cases, {3, 4, 1, 2}, 9);
}

void add_products_and_tables(Cases& cases) {
  for (const Shapes& shapes : {Shapes{{3, 5}, {5, 2}}, Shapes{{1, 1}, {1, 1}},
                               Shapes{{2, 3, 5}, {5, 4}}, Shapes{{2, 3, 5}, {2, 5, 4}},
                               Shapes{{2, 1, 3, 5}, {2, 1, 5, 7}}, Shapes{{2, 3, 1, 5}, {5, 1}},
                               Shapes{{3, 5}, {4, 5, 2}}, Shapes{{3, 2, 4, 5}, {2, 5, 3}},
                               Shapes{{2, 3, 5}, {1, 2, 5, 4}}}) {
    cases.add("matmul", product, shapes);
  }
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{2, 3}}) {
    Shape inner = shape;
    inner.push_back(5);
    cases.add("linear_cross_entropy", fused_entropy,
              std::vector{random_normal(inner, DType::f64, 33),
                          random_normal({6, 5}, DType::f64, 34), random_integers(shape, 6, 35)});
  }
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{2, 3, 4}}) {
    const Tensor table = random_normal({6, 5}, DType::f64, 41), ids = random_integers(shape, 6, 42);
    cases.add("embedding", looked_up, std::vector{table, ids});
    cases.add("embedding i32", looked_up, std::vector{table, ids.to(DType::i32)});
  }
  for (const auto& [x, axis, index] : {std::tuple<Shape, int, Shape>{{5}, 0, {7}},
                                       {{1}, 0, {1}},
                                       {{4, 3}, 0, {7, 1}},
                                       {{4, 3}, 0, {2, 3}},
                                       {{4, 3}, 1, {4, 5}},
                                       {{4, 3}, 1, {1, 5}},
                                       {{2, 3, 5}, 1, {2, 9, 5}},
                                       {{2, 3, 5}, 1, {2, 9, 1}},
                                       {{2, 3, 5}, 1, {1, 9, 5}},
                                       {{2, 3, 5}, 1, {1, 1, 1}},
                                       {{2, 3, 5}, 1, {2, 0, 5}},
                                       {{2, 3, 4, 5}, 2, {2, 1, 6, 5}},
                                       {{2, 3, 4, 5}, 3, {2, 3, 1, 6}}}) {
    cases.add(fmt::format("gather {}", axis), gathered(axis), to_gather(x, axis, index));
  }
}

// Decays between 0 and 1.
void add_moving_averages(Cases& cases, const Shape& x, i64 states) {
  for (const auto& [directions, truncation] : {std::pair<i64, i64>{1, 0}, {2, 0}, {2, 3}, {1, 5}}) {
    const auto f = [truncation = truncation](Inputs in) {
      return moving_average(in[0], sigmoid(in[1]), in[2], {}, truncation);
    };
    const Shape coefficients{directions, x[2], states};
    cases.add(fmt::format("moving_average {}", truncation), f,
              Shapes{x, coefficients, coefficients});
    cases.list.back().roundings = 4;  // an average amplifies the rounding of its decays
  }
}

void add_views(Cases& cases) {
  const Shape shape{2, 3, 4};
  const auto reshaped = [](Inputs in) { return reshape(exp(in[0]), {3, 8}); };
  const auto transposed = [](Inputs in) { return transpose(in[0], 0, -1); };
  const auto expanded = [](Inputs in) { return expand(in[0], {5, 2, 3, 4}); };
  cases.add("reshape", reshaped, Shapes{shape});
  cases.add("transpose", transposed, Shapes{shape});
  cases.add("expand", expanded, Shapes{{2, 1, 4}});
  cases.add("expand", expanded, Shapes{{}});
  for (const auto& [axis, begin, end] : {std::array{0, 1, 2}, {1, 0, 3}, {-1, 1, 3}, {1, 2, 2}}) {
    const auto f = [axis = axis, begin = begin, end = end](Inputs in) {
      return slice(in[0], axis, begin, end);
    };
    cases.add("slice", f, Shapes{shape});
  }
  for (const int axis : {0, 1, -1}) {
    Shape wide = shape;
    wide[axis < 0 ? axis + 3 : axis] = 5;
    const auto joined = [axis](Inputs in) { return concatenate(in, axis); };
    const auto parted = [axis](Inputs in) { return split(in[0], axis, {1, 3, 1}); };
    cases.add(fmt::format("concatenate {}", axis), joined, Shapes{shape, wide, shape});
    cases.add(fmt::format("split {}", axis), parted, Shapes{wide});
  }
  const auto doubled = [](Inputs in) {
    return concatenate(std::vector{in[0], exp(in[0]), in[0]}, 1);
  };
  cases.add("concatenate with itself", doubled, Shapes{{2, 3}});
}

void add_layers(Cases& cases) {
  for (const Shape& x : {Shape{5}, Shape{1, 4}, Shape{2, 3, 7}}) {
    const i64 n = x.back();
    cases.add("linear", affine, Shapes{x, {n, 4}, {4}});
    cases.add("linear without bias", affine, Shapes{x, {n, 4}});
    const std::pair<Activation, const char*> activations[] = {
        {Activation::gelu, "gelu"}, {Activation::relu, "relu"}, {Activation::silu, "silu"}};
    for (const auto& [activation, name] : activations) {
      const auto f = [activation = activation](Inputs in) {
        return feed_forward(in[0], in[1], in[2], in[3], in[4], activation);
      };
      cases.add(std::string("feed_forward ") + name, f, Shapes{x, {n, 9}, {9}, {9, 3}, {3}});
      cases.list.back().roundings = 3;
    }
    const auto normalised = [](Inputs in) { return layer_norm(in[0], in[1], in[2]); };
    cases.add("layer_norm", normalised, Shapes{x, {n}, {n}});
    for (const Residual& options :
         {Residual{}, Residual{DropoutOn::branch}, Residual{DropoutOn::sum, 0.4, {1, 2, 3}},
          Residual{DropoutOn::branch, 0.4, {1, 2, 3}}}) {
      const auto f = [options](Inputs in) {
        return residual_layer_norm(in[0], in[1], in[2], in[3], options);
      };
      cases.add("residual_layer_norm", f, Shapes{x, x, {n}, {n}});
    }
  }
  for (const auto& [first, x] : {std::pair{0, Shape{1, 1, 1, 2}}, {0, Shape{2, 5, 3, 4}},
                                 {7, Shape{1, 3, 2, 6}}, {1000, Shape{2, 1, 1, 8}}}) {
    const auto f = [first = first](Inputs in) { return rotary(in[0], first, 100); };
    cases.add(fmt::format("rotary from {}", first), f, Shapes{x});
  }
  cases.add("linear", affine, Shapes{{1, 1}, {1, 1}, {1}});
  for (const Activation activation : {Activation::none, Activation::relu}) {
    const auto f = [activation](Inputs in) {
      return causal_conv1d(in[0], in[1], in[2], activation);
    };
    for (const i64 window : {1, 3, 8}) {
      for (const Shape& x : {Shape{1, 1, 1}, Shape{2, 5, 3}, Shape{3, 9, 4}}) {
        cases.add(activation == Activation::none ? "causal_conv1d" : "causal_conv1d relu", f,
                  Shapes{x, {window, x.back(), 5}, {5}});
      }
    }
  }
}

}  // namespace

std::vector<OpCase> op_cases() {
  Cases cases;
  add_pointwise(cases);
  add_reductions(cases);
  add_products_and_tables(cases);
  add_all_blocks(cases);
  add_moving_averages(cases, {2, 7, 3}, 5);
  add_moving_averages(cases, {1, 1, 1}, 1);
  add_views(cases);
  add_layers(cases);
  return cases.list;
}

std::vector<OpCase> large_op_cases() {
  Cases cases;
  const auto activated = [](Inputs in) { return gelu(in[0]); };
  cases.add("gelu", activated, Shapes{{71, 1009}});
  add_moving_averages(cases, {3, 150, 70}, 16);
  cases.add("add", plus, Shapes{{71, 1009}, {71, 1009}});
  cases.add("add", plus, Shapes{{40, 60, 33}, {33}});
  cases.add("add", plus, Shapes{{40, 60, 33}, {60, 33}});
  cases.add("add", plus, Shapes{{9, 9001}, {9001}});
  cases.add("mul", times, Shapes{{40, 60, 33}, {40, 1, 33}});
  cases.add("mul", times, Shapes{{40, 60, 33}, {40, 60, 1}});
  cases.add("mul", times, Shapes{{2, 37001}, {}});
  cases.add("sub", minus, Shapes{{40, 60, 33}, {60, 33}});
  cases.add("div", quotient,
            std::vector{random_normal({40, 60, 33}, DType::f64, 6), away_from_zero({60, 1}, 0.5)});
  cases.add("maximum", larger, Shapes{{71, 1009}, {71, 1}});
  for (const Shape& shape : {Shape{71, 1009}, Shape{90, 1016}, Shape{70001}}) {
    cases.add("dropout", dropped, Shapes{shape});
  }
  for (const int axis : {0, 1, 2}) {
    const auto f = [axis](Inputs in) { return sum(in[0], axis); };
    for (const Shape& shape : {Shape{3, 90, 301}, Shape{2, 40000, 1}, Shape{1, 3, 40000},
                               Shape{9000, 3, 3}, Shape{3, 5, 6007}}) {
      cases.add(fmt::format("sum {}", axis), f, Shapes{shape});
      cases.add(fmt::format("cumulative_sum {}", axis), cumulated(axis, axis == 1), Shapes{shape});
    }
  }
  cases.add("gather", gathered(1), to_gather({40, 60, 33}, 1, {40, 90, 33}));
  add_blocks(cases, {2, 301, 3, 100}, 30);
  cases.add("gather", gathered(0), to_gather({9, 300}, 0, {400, 1}));
  cases.add("gather", gathered(1), to_gather({3, 5}, 1, {3, 40000}));
  const auto average = [](Inputs in) { return mean(in[0]); };
  cases.add("mean", average, Shapes{{70, 1001}});
  const auto probabilities = [](Inputs in) { return softmax(in[0]); };
  const auto normaliser = [](Inputs in) { return log_sum_exp(in[0]); };
  for (const Shape& shape : {Shape{1500, 27}, Shape{3, 17001}}) {
    cases.add("softmax", probabilities, Shapes{shape});
    cases.add("log_sum_exp", normaliser, Shapes{shape});
    const Tensor targets = random_integers({shape[0]}, shape[1], 32);
    cases.add("cross_entropy", entropy, std::vector{random_normal(shape, DType::f64, 31), targets});
  }
  cases.add(
      "linear_cross_entropy", fused_entropy,
      std::vector{random_normal({3, 9, 4}, DType::f64, 33),
                  random_normal({150001, 4}, DType::f64, 34), random_integers({3, 9}, 150001, 35)});
  const Tensor ids = random_integers({3, 900}, 27, 2);
  cases.add("embedding", looked_up, std::vector{random_normal({27, 40}, DType::f64, 1), ids});
  const Tensor wide = random_normal({9, 200}, DType::f64, 1);
  cases.add("embedding", looked_up, std::vector{wide, random_integers({400}, 9, 2)});
  cases.add("matmul", product, Shapes{{3, 300, 20}, {20, 30}});
  cases.add("matmul", product, Shapes{{2, 5, 70}, {2, 70, 600}});
  cases.add("linear", affine, Shapes{{3, 700, 20}, {20, 30}, {30}});
  cases.add("linear", affine, Shapes{{5, 300}, {300, 1030}, {1030}});  // a weight cut by columns
  cases.add("linear", affine, Shapes{{520, 140}, {140, 1030}, {1030}});  // and by rows
  const auto fed = [](Inputs in) { return feed_forward(in[0], in[1], in[2], in[3], in[4]); };
  cases.add("feed_forward", fed, Shapes{{3, 200, 8}, {8, 32}, {32}, {32, 8}, {8}});
  cases.list.back().roundings = 3;
  const auto normalised = [](Inputs in) {
    return residual_layer_norm(in[0], in[1], in[2], in[3], {DropoutOn::sum, 0.1, {1, 2, 3}});
  };
  cases.add("residual_layer_norm", normalised, Shapes{{9, 300, 24}, {9, 300, 24}, {24}, {24}});
  const auto vanilla = [](Inputs in) {
    return residual_layer_norm(in[0], in[1], in[2], in[3], {DropoutOn::branch, 0.3, {1, 2, 3}});
  };
  for (const i64 d : {300, 700, 2303}) {
    cases.add("residual_layer_norm", normalised, Shapes{{3, d}, {3, d}, {d}, {d}});
    cases.add("residual_layer_norm vanilla", vanilla, Shapes{{3, d}, {3, d}, {d}, {d}});
  }
  const auto turned = [](Inputs in) { return rotary(in[0], 3); };
  cases.add("rotary", turned, Shapes{{3, 301, 3, 34}});
  const auto convolved = [](Inputs in) {
    return causal_conv1d(in[0], in[1], in[2], Activation::relu);
  };
  for (const i64 window : {6, 8}) {
    cases.add("causal_conv1d", convolved, Shapes{{7, 301, 9}, {window, 9, 10}, {10}});
  }
  return cases.list;
}

}  // namespace weft
