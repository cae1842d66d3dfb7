#include "tests/attention/toy.h"

#include "autograd/tape.h"
#include "ops/attention/definitions.h"
#include "ops/attention/scores.h"
#include "ops/gather/gather.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace weft {
namespace {

int draws = 0;

void draw_features(RandomKey key, const Tensor& target) {
  ++draws;
  const Tensor values = Tensor::empty(target.shape(), DType::f64);
  for (i64 i = 0; i < values.count(); ++i) {
    const Philox words = key.words(static_cast<std::uint64_t>(i));
    values.data<double>()[i] = normal(words.word[0], words.word[1]);
  }
  target.copy_from(values);
}

AttentionInputs inputs_of(const AttentionSpec& spec, const AttentionSizes& s) {
  const i64 extra = spec.integer("extra"), step = spec.integer("step");
  const i64 width = width_of(spec, s), rows = (s.N_max + step - 1) / step;
  return {{.name = "x", .role = Role::sequence, .axes = "B N d"},
          {.name = "gate",
           .axes = "B N width",
           .shape = {s.B, s.N, width},
           .through = {5},
           .weight = {Initializer::he_uniform},
           .biased = true},
          {.name = "w",
           .role = Role::parameter,
           .axes = "d 2d+extra",
           .shape = {s.d, 2 * s.d + extra}},
          {.name = "table",
           .role = Role::parameter,
           .axes = "⌈N_max/step⌉ d",
           .shape = {rows, s.d},
           .weight = {Initializer::constant, 0.5},
           .bounds = {0, 1}},
          {.name = "omega",
           .role = Role::drawn,
           .axes = "features d",
           .draw = draw_features,
           .redraw = 3},
          {.name = "marks", .role = Role::index, .axes = "marked", .shape = {2}, .optional = true},
          {.name = "bias", .role = Role::bias, .axes = "b h N S", .optional = true}};
}

// Data common to the items of a call.
struct Toy {
  const AttentionSpec& spec;
  const AttentionCall& call;
  std::span<const Variable> inputs;
  bool residual = false;  // out = x + a v

  const Variable& x() const { return inputs[0]; }

  // Rows of the table for n positions, [n, d].
  Variable rows(i64 n) const {
    const Variable& table = inputs[3];
    const Tensor index = Tensor::empty({n, table.size(1)}, DType::i64);
    for (i64 i = 0; i < index.count(); ++i) {
      index.data<i64>()[i] = (call.offset + i / table.size(1)) / spec.integer("step");
    }
    return gather(table, 0, index.to(table.value().device()));
  }

  // 0 or 1 a key, [n].
  Variable marks(i64 n) const {
    const Tensor marked = Tensor::zeros({n}, DType::f64);
    if (inputs[5].defined()) {
      for (const i64 j : inputs[5].value().to(Device{}).to_vector<i64>()) {
        require(j >= 0 && j < n, "toy: marks holds {}, outside 0 … {}", j, n - 1);
        marked.data<double>()[j] = 1;
      }
    }
    const Tensor& like = x().value();
    return marked.to(like.dtype()).to(like.device());
  }

  // out [1, n, W] of item b, of which n positions exist.
  Variable item(i64 b, i64 n) const {
    const i64 d = x().size(2);
    const auto cut = [&](const Variable& whole) {
      return reshape(slice(slice(whole, 0, b, b + 1), 1, 0, n), {n, whole.size(2)});
    };
    const Variable xb = cut(x()), p = matmul(xb, inputs[2]);
    const Variable features = transpose(inputs[4], 0, 1);
    const Variable q = matmul(add(xb, rows(n)), features);
    const Variable k = matmul(slice(p, 1, 0, d), features);
    Variable z = scale(matmul(q, transpose(k, 0, 1)), 1 / double(d * d));  // [n, n]
    z = add(z, marks(n));
    if (inputs[6].defined()) {
      const Variable& bias = inputs[6];
      const Variable own = bias.size(0) == 1 ? bias : slice(bias, 0, b, b + 1);
      z = add(z, reshape(slice(slice(own, 2, 0, n), 3, 0, n), {n, n}));
    }
    if (call.causal) {
      const Tensor seen = Tensor::zeros({n, n}, DType::f64);
      for (i64 i = 0; i < n; ++i) seen.slice(0, i, i + 1).slice(1, 0, i + 1).fill(1);
      z = masked(z, seen);
    }
    const Variable s = mean(slice(p, 1, d, 2 * d), 1), c = mean(slice(p, 1, 2 * d, p.size(1)), 1);
    const Variable v = add(cut(inputs[1]), reshape(add(s, c), {n, 1}));
    const Variable attended = matmul(softmax(z), v);
    return reshape(residual ? add(xb, attended) : attended, {1, n, v.size(1)});
  }

  Attended operator()() const {
    const i64 B = x().size(0), N = x().size(1), W = inputs[1].size(2);
    const Tensor& like = x().value();
    const Tensor lengths = call.lengths.defined() ? call.lengths.to(Device{}) : call.lengths;
    std::vector<Variable> items;
    for (i64 b = 0; b < B; ++b) {
      const i64 n = length_of(lengths, b, N);
      std::vector<Variable> parts;
      if (n > 0) parts.push_back(item(b, n));
      if (n < N || N == 0) {
        parts.emplace_back(Tensor::zeros({1, N - n, W}, like.dtype(), like.device()));
      }
      items.push_back(concatenate(parts, 1));
    }
    const Variable penalty = scale(mean(inputs[3]), 0.1);
    if (B == 0) return {Tensor::zeros({B, N, W}, like.dtype(), like.device()), penalty};
    return {concatenate(items, 0), penalty};
  }
};

Attended attend_toy(const AttentionSpec& spec, const AttentionCall& call,
                    std::span<const Variable> inputs) {
  return Toy{spec, call, inputs}();
}

Attended attend_residual(const AttentionSpec& spec, const AttentionCall& call,
                         std::span<const Variable> inputs) {
  return Toy{spec, call, inputs, true}();
}

class ToyDecoding final : public DecodingState {
 public:
  explicit ToyDecoding(const AttentionSpec& spec) : spec_(spec) {}

  Tensor step(std::span<const Tensor> inputs) override {
    const Tape::Pause pause;
    const i64 n = inputs[0].size(1);
    for (const std::size_t i : {0, 1}) {
      const Variable parts[] = {kept_[i].defined() ? Variable(kept_[i]) : Variable(), inputs[i]};
      const std::span<const Variable> all(parts);
      kept_[i] = concatenate(kept_[i].defined() ? all : all.subspan(1), 1).value();
    }
    std::vector<Variable> list(inputs.begin(), inputs.end());
    list[0] = kept_[0], list[1] = kept_[1];
    const Tensor out = attend(spec_, {.causal = true}, list).out.value();
    return out.slice(1, out.size(1) - n, out.size(1));
  }

  i64 bytes() const override {
    return (kept_[0].count() + kept_[1].count()) * i64(size_of(kept_[0].dtype()));
  }

 private:
  AttentionSpec spec_;
  Tensor kept_[2];  // x and gate of all positions
};

Mechanism sheet() {
  return {.name = "toy",
          .title = "every role of the interface in a block of plain ops",
          .paper = "none",
          .equations = "tests/attention/toy.h",
          .kind = Kind::block,
          .inputs = inputs_of,
          .out_width = width_of,
          .options = {{.name = "width",
                       .initial = "0",
                       .help = "of out; 0: d",
                       .least = 0,
                       .most = 4096,
                       .tried = {"3"}},
                      {.name = "extra",
                       .initial = "2",
                       .help = "columns of w",
                       .least = 1,
                       .most = 64,
                       .tried = {"3"}},
                      {.name = "step",
                       .initial = "4",
                       .help = "positions a row of the table",
                       .least = 1,
                       .most = 64,
                       .tried = {"1"}},
                      {.name = "features",
                       .initial = "3",
                       .help = "rows of omega",
                       .least = 1,
                       .most = 64,
                       .tried = {"7"}}},
          .masks = {.causal = true, .lengths = true, .bias = true},
          .strictly_causal = true,
          .drops_weights = false,
          .scaling = "N N",
          .memory = "N N",
          .attend = attend_toy,
          .reference = attend_toy,
          .decode = [](const AttentionSpec& spec, const AttentionSizes&, DType, i64)
              -> std::unique_ptr<DecodingState> { return std::make_unique<ToyDecoding>(spec); }};
}

const Registration registered_toy{sheet()};
const Registration registered_residual{[] {
  Mechanism own = sheet();
  own.name = "toy-residual";
  own.owns_residual = true;
  own.out_width = nullptr;
  own.options.erase(own.options.begin());
  own.inputs = [](const AttentionSpec& spec, const AttentionSizes& sizes) {
    AttentionInputs inputs = inputs_of(AttentionSpec("toy").with("extra", spec.integer("extra"))
                                           .with("step", spec.integer("step")), sizes);
    inputs[1].axes = "B N d";
    return inputs;
  };
  own.attend = own.reference = attend_residual;
  return own;
}()};

}  // namespace

int toy_draws() { return draws; }

}  // namespace weft
