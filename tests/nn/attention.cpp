#include "nn/attention.h"

#include <algorithm>

#include "autograd/tape.h"
#include "nn/transformer.h"
#include "ops/pointwise/pointwise.h"
#include "tests/nn/checks.h"

using namespace weft;

namespace {

std::vector<std::string> operators() {
  std::vector<std::string> names;
  for (const Mechanism* mechanism : mechanisms()) {
    const bool in_layers = mechanism->rows.count == nullptr;
    if (!mechanism->wrapper && in_layers) names.push_back(mechanism->name);
  }
  return names;
}

// Performer's exponential features treat their maxima as constants, which differences do not.
nn::AttentionOptions options(const std::string& mechanism, bool causal) {
  std::string smooth = mechanism == "performer" ? "performer:kernel=hyperbolic" : mechanism;
  if (mechanism == "isab") smooth = "isab:heads=2";
  if (mechanism == "mega") smooth = "mega:key_width=3,states=3";
  if (mechanism == "sinkhorn") smooth = causal ? "sinkhorn:block=2" : "sinkhorn:block=1";
  return {.mechanism = smooth, .width = 6, .heads = 2, .causal = causal, .max_length = 64};
}

Tensor output_of(const nn::Attention& layer, const Tensor& x, const nn::Lengths& lengths = {},
                 const Tensor& memory = {}) {
  const auto there = [](const Tensor& tensor) { return tensor.to(tested_device()); };
  Context context = Context::evaluation();
  return layer(context, Variable(there(x)), {there(lengths.keys), there(lengths.queries)},
               Variable(there(memory)))
      .value();
}

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("attention: gradients of every mechanism, causal and not, with dropout") {
  for (const std::string& name : operators()) {
    for (const bool causal : {false, true}) {
      if (causal ? !mechanism(name).masks.causal : mechanism(name).causal_only) continue;
      CAPTURE(name);
      nn::AttentionOptions sheet = options(name, causal);
      sheet.dropout = 0.2;
      nn::Attention layer(sheet, f64);
      // With small weights mega's scores move so little that differences are mostly rounding
      // errors.
      check_gradients_of(layer, name == "mega" ? 1.2 : 0.4);
    }
  }
}

TEST_CASE("attention: cross-attention's gradients, and a memory that is x is self-attention") {
  for (const std::string& name : operators()) {
    if (!mechanism(name).cross) continue;
    CAPTURE(name);
    nn::Attention layer(options(name, false), f64);
    randomise(layer, 3);
    const Tensor x = random_normal({2, 5, 6}, f64, 1), memory = random_normal({2, 3, 6}, f64, 2);
    check_gradients_of(layer,
                       [&](std::span<const Variable> v) {
                         Context context = Context::evaluation();
                         return std::vector<Variable>{layer(context, v[0], {}, v[1])};
                       },
                       {x, memory});
    const Tensor alone = output_of(layer, x);
    CHECK(relative_error(output_of(layer, x, {}, x), alone) < tolerance::backward_f64);
    CHECK(relative_error(output_of(layer, x, {}, memory), alone) > 1e-3);
  }
}

TEST_CASE("attention: a bias that the caller gives is added to the scores, and gets a gradient") {
  nn::Attention layer(options("full", false), f64), causal(options("full", true), f64);
  randomise(layer, 3);
  randomise(causal, 3);  // the same parameters
  const Tensor x = random_normal({2, 5, 6}, f64, 1).to(tested_device());
  std::vector<double> hidden(5 * 5, 0);
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = i + 1; j < 5; ++j) hidden[i * 5 + j] = -1e30;
  }
  const Tensor later = Tensor::from(hidden, {1, 1, 5, 5}).expand({2, 2, 5, 5}).clone();
  Context context = Context::evaluation();
  const Tensor with_bias = layer(context, x, {}, {}, {{"bias", later.to(tested_device())}}).value();
  CHECK(relative_error(with_bias, causal(context, x).value()) < tolerance::forward_f64);
  CHECK(relative_error(with_bias, layer(context, x).value()) > 0.01);
  check_gradients_of(
      layer,
      [&](std::span<const Variable> v) {
        Context training(true, 5, 1);
        return std::vector<Variable>{layer(training, v[0], {}, {}, {{"bias", v[1]}})};
      },
      {random_normal({2, 5, 6}, f64, 1), random_normal({2, 2, 5, 5}, f64, 2)});
  for (const char* name : {"q", "biases"}) {
    CHECK_THROWS_WITH_AS(layer(context, x, {}, {}, {{name, x}}),
                         fmt::format("attention: full takes no '{}' from its caller", name).c_str(),
                         Error);
  }
}

TEST_CASE("attention: what stands past a length changes nothing before it") {
  for (const std::string& name : operators()) {
    if (!mechanism(name).masks.lengths) continue;
    CAPTURE(name);
    nn::Attention layer(options(name, mechanism(name).causal_only), f64);
    randomise(layer, 3);
    const nn::Lengths lengths{Tensor::from(std::vector<i64>{3, 5}, {2}), {}};
    const Tensor x = random_normal({2, 5, 6}, f64, 1), other = x.clone();
    other.slice(0, 0, 1).slice(1, 3, 5).copy_from(random_normal({1, 2, 6}, f64, 7));
    const Tensor a = output_of(layer, x, lengths), b = output_of(layer, other, lengths);
    CHECK(same_bits(a.slice(0, 0, 1).slice(1, 0, 3), b.slice(0, 0, 1).slice(1, 0, 3)));
    CHECK(same_bits(a.slice(0, 1, 2), b.slice(0, 1, 2)));
    CHECK_FALSE(same_bits(output_of(layer, x), output_of(layer, other)));
    const Tensor past = a.slice(0, 0, 1).slice(1, 3, 5);
    CHECK(past.to_vector<double>() == std::vector<double>(12, 0.0));
  }
}

TEST_CASE("attention: a causal layer fills a sequence up to whole blocks") {
  nn::Attention layer(options("sinkhorn", true), f64);
  randomise(layer, 3);
  const Tensor x = random_normal({2, 8, 6}, f64, 1), whole = output_of(layer, x);
  for (const i64 N : {1, 5, 8}) {
    CHECK(relative_error(output_of(layer, x.slice(1, 0, N)), whole.slice(1, 0, N)) <
          tolerance::forward_f64);
  }
  CHECK_ERROR(nn::Attention({.mechanism = "sinkhorn:sort=simple", .max_length = 64}),
              "attention: sinkhorn has a causal form with sort=attention alone");
}

TEST_CASE("attention: longformer's global projections start as copies of the others") {
  nn::Attention layer(options("longformer", false), f64);
  initialize(layer, 3);
  std::map<std::string, Tensor> start;
  each_parameter(layer, [&](const std::string& name, Parameter& parameter) {
    start[name] = parameter.value().clone();
  });
  CHECK(same_bits(start.at("qkv_global.weight"), start.at("qkv.weight")));
  CHECK_FALSE(same_bits(start.at("output.weight"), start.at("qkv.weight")));
  const Tensor x = random_normal({2, 9, 6}, f64, 1);
  nn::Attention full(options("full", false), f64);
  initialize(full, 3);
  nn::AttentionOptions all = options("longformer", false);
  all.mechanism = "longformer:window=1,global_tokens=9";
  nn::Attention global(all, f64);
  initialize(global, 3);
  move_to(full, tested_device()), move_to(global, tested_device());
  CHECK(relative_error(output_of(global, x), output_of(full, x)) < tolerance::forward_f64);
}

TEST_CASE("attention: the parameters of full attention by name, and one map to q, k and v") {
  nn::Attention full({.mechanism = "full", .width = 64, .heads = 8});
  const std::vector<NamedParameter> list = parameters(full);
  REQUIRE(list.size() == 2);
  CHECK(list[0].name == "qkv.weight");
  CHECK(list[0].variable.shape() == Shape{64, 192});
  CHECK(list[1].name == "output.weight");
}

TEST_CASE("attention: the starts are those of the fact sheet") {
  nn::Attention layer({.mechanism = "agglomerative", .width = 64, .heads = 8});
  initialize(layer, 1);
  each_parameter(layer, [](const std::string& name, Parameter& parameter) {
    CAPTURE(name);
    const bool bias = name == "zq.bias" || name == "zk.bias";
    CHECK((parameter.initializer.kind == Initializer::normal) == bias);
    CHECK((parameter.initializer.kind == Initializer::glorot_uniform) != bias);
    if (bias) CHECK(parameter.initializer.scale == 0.05);
    const std::vector<float> values = parameter.value().to_vector<float>();
    CHECK(std::count(values.begin(), values.end(), 0.0f) == 0);
  });
}

TEST_CASE("attention: heads with their own widths") {
  nn::AttentionOptions sheet = options("full", true);
  sheet.key_width = 4;
  sheet.value_width = 5;
  sheet.output_bias = true;
  nn::Attention layer(sheet, f64);
  CHECK(parameter_count(layer) == 6 * (2 * 4 + 2 * 4 + 2 * 5) + 2 * 5 * 6 + 6);
  randomise(layer, 2);
  CHECK(output_of(layer, random_normal({2, 3, 6}, f64, 1)).shape() == Shape{2, 3, 6});
}

TEST_CASE("attention: steps give the whole sequence") {
  for (const std::string& name : operators()) {
    if (!can_decode(AttentionSpec(name))) continue;
    CAPTURE(name);
    nn::Attention layer(options(name, true));
    randomise(layer, 3);
    const Tensor x = random_normal({2, 9, 6}, DType::f32, 1).to(tested_device());
    const Tensor whole = output_of(layer, x);
    nn::Attention::State state = layer.start(9, 2);
    for (i64 t = 0; t < 9; ++t) {
      const Tensor y = layer.step(state, Variable(x.slice(1, t, t + 1))).value();
      CHECK(relative_error(y, whole.slice(1, t, t + 1)) < tolerance::forward_f32_long);
    }
  }
}

TEST_CASE("attention: rotary positions where there are q and k, elsewhere an error") {
  int turned = 0;
  for (const std::string& name : operators()) {
    CAPTURE(name);
    const Mechanism& sheet = mechanism(name);
    nn::AttentionOptions plain = options(name, sheet.masks.causal);
    plain.key_width = plain.value_width = 4;
    nn::AttentionOptions rotary = plain;
    rotary.rotary = true;
    const AttentionSizes sizes{.H = 2, .E = 4, .M = 4, .d = 6};
    const AttentionInputs inputs = attention_inputs(AttentionSpec(name), sizes);
    const auto takes = [&](const char* input) {
      return std::ranges::count(inputs, input, &AttentionInput::name) == 1;
    };
    if (!takes("q") || !takes("k")) {
      try {
        nn::Attention layer(rotary);
        FAIL("no error");
      } catch (const Error& error) {
        CHECK(std::string(error.what()).find("but " + name + " takes ") != std::string::npos);
      }
      continue;
    }
    ++turned;
    nn::Attention layer(rotary, f64), without(plain, f64);
    randomise(layer, 3), randomise(without, 3);
    const Tensor x = random_normal({2, 5, 6}, f64, 1);
    check_gradients_of(layer,
                       [&](std::span<const Variable> v) {
                         Context context = Context::evaluation();
                         return std::vector<Variable>{layer(context, v[0])};
                       },
                       {x});
    const Tensor whole = output_of(layer, x);
    CHECK(relative_error(whole, output_of(without, x)) > 1e-3);
    if (sheet.cross && !sheet.masks.causal) {
      CHECK(relative_error(output_of(layer, x, {}, x), whole) < tolerance::backward_f64);
    }
    if (!can_decode(AttentionSpec(sheet.name))) continue;
    for (const i64 before : {0, 1000}) {
      // A softmax of q · k is invariant to the beginning of a sequence; random features and rows of
      // distances use q alone.
      const bool sees_q = name == "performer" || name == "transformer-xl";
      if (before > 0 && (sheet.row_sums != RowSums::one || sees_q)) continue;
      nn::Attention::State state = layer.start(5, 2);
      state.positions = before;
      for (i64 t = 0; t < 5; ++t) {
        const Variable one(x.slice(1, t, t + 1).to(tested_device()));
        CHECK(relative_error(layer.step(state, one).value(), whole.slice(1, t, t + 1)) < 1e-9);
      }
    }
  }
  CHECK(turned >= 3);
  nn::AttentionOptions odd = options("full", true);
  odd.rotary = true;
  CHECK_THROWS_AS(nn::Attention{odd}, Error);  // heads of three
}

TEST_CASE("attention: settings and inputs that do not fit are errors that say so") {
  CHECK_THROWS_WITH_AS(nn::Attention({.mechanism = "segtree", .width = 6, .heads = 2}),
                       "attention: segtree attends between rows that are not positions, which no "
                       "layer makes; use another mechanism, or `attend` over rows of your own",
                       Error);
  CHECK_THROWS_WITH_AS(nn::Attention({.width = 64, .heads = 7}),
                       "attention: the width 64 does not divide into 7 heads; choose a multiple",
                       Error);
  CHECK_THROWS_AS(nn::Attention({.mechanism = "fool"}), Error);
  CHECK_THROWS_AS(nn::Attention({.dropout = 1}), Error);
  nn::Attention layer(options("full", false), f64);
  randomise(layer, 1);
  CHECK_THROWS_WITH_AS(output_of(layer, random_normal({2, 3, 5}, f64, 1)),
                       "attention: wanted a sequence [B, N, 6], got [2,3,5]", Error);
  CHECK_THROWS_WITH_AS(layer.start(8), "attention: only a causal layer can decode step by step",
                       Error);
}

TEST_CASE("transformer block: gradients in every wiring, with dropout and lengths") {
  using enum nn::BlockWiring;
  for (const nn::BlockWiring wiring : {universal, vanilla, prenorm}) {
    nn::BlockOptions sheet{
        .attention = options("full", false), .hidden = 9, .wiring = wiring, .dropout = 0.2};
    sheet.attention.dropout = 0.1;
    nn::TransformerBlock block(sheet, f64);
    randomise(block, 3);
    const nn::Lengths lengths{Tensor::from(std::vector<i64>{3, 5}, {2}).to(tested_device()), {}};
    check_gradients_of(block,
                       [&](std::span<const Variable> v) {
                         Context context(true, 5, 1);
                         return std::vector<Variable>{block(context, v[0], lengths)};
                       },
                       {random_normal({2, 5, 6}, f64, 1)});
  }
}

TEST_CASE("transformer block: without dropout both wirings with norms behind agree, not with it") {
  using enum nn::BlockWiring;
  const auto output = [](nn::BlockWiring wiring, bool training) {
    nn::TransformerBlock block(
        {.attention = options("full", true), .wiring = wiring, .dropout = 0.5}, f64);
    randomise(block, 3);
    Context context(training, 5, 1);
    return block(context, Variable(random_normal({2, 5, 6}, f64, 1).to(tested_device()))).value();
  };
  CHECK(same_bits(output(universal, false), output(vanilla, false)));
  CHECK_FALSE(same_bits(output(universal, true), output(vanilla, true)));
  CHECK_FALSE(same_bits(output(universal, false), output(prenorm, false)));
  CHECK_FALSE(same_bits(output(prenorm, true), output(prenorm, false)));
}

TEST_CASE("transformer block: prenorm is its definition") {
  nn::TransformerBlock block(
      {.attention = options("full", true), .hidden = 9, .wiring = nn::BlockWiring::prenorm}, f64);
  randomise(block, 3);
  const Variable x(random_normal({2, 5, 6}, f64, 1).to(tested_device()));
  Context context = Context::evaluation();
  const Variable y = add(x, block.attention(context, (*block.norm1)(x)));
  const Variable wanted = add(y, block.feed_forward(block.norm2(y)));
  CHECK(relative_error(block(context, x).value(), wanted.value()) < tolerance::forward_f64);
}

TEST_CASE("transformer: a stack has its own weights, gradients, and steps that give the whole") {
  nn::BlockOptions sheet{.attention = options("full", true), .hidden = 5, .dropout = 0.2};
  nn::Transformer stack(sheet, 2, f64);
  nn::TransformerBlock one(sheet, f64);
  CHECK(parameter_count(stack) == 2 * parameter_count(one));
  randomise(stack, 3);
  const Tensor x = random_normal({2, 5, 6}, f64, 1).to(tested_device());
  check_gradients_of(stack,
                     [&](std::span<const Variable> v) {
                       Context context(true, 5, 1);
                       return std::vector<Variable>{stack(context, v[0])};
                     },
                     {x});
  Context context = Context::evaluation();
  const Tensor whole = stack(context, Variable(x)).value();
  nn::Transformer::State state = stack.start(5, 2);
  for (i64 t = 0; t < 5; ++t) {
    const Variable y = stack.step(state, Variable(x.slice(1, t, t + 1)));
    CHECK(relative_error(y.value(), whole.slice(1, t, t + 1)) < tolerance::backward_f64);
  }
}

TEST_CASE("decoding: states of another batch or model are refused, and nothing is recorded") {
  for (const char* mechanism : {"full", "linear", "agglomerative"}) {
    CAPTURE(mechanism);
    const nn::BlockOptions sheet{.attention = options(mechanism, true), .hidden = 5};
    nn::Transformer stack(sheet, 2, f64);
    randomise(stack, 3);
    const auto x = [](i64 batch) {
      return Variable::leaf(random_normal({batch, 1, 6}, f64, 1).to(tested_device()));
    };
    nn::Transformer::State state = stack.start(5, 2);
    CHECK_ERROR(stack.step(state, x(3)), "the state was started for a batch of 2, got [3,1,6]");
    CHECK_ERROR(stack.step(state, x(1)), "the state was started for a batch of 2, got [1,1,6]");
    const Tape tape;
    CHECK_FALSE(stack.step(state, x(2)).wants_gradient());
    state.pop_back();
    CHECK_ERROR(stack.step(state, x(2)), "the state is of 1 blocks, the model of 2");
    nn::Attention::State nothing;
    CHECK_ERROR(stack.blocks[0].attention.step(nothing, x(2)), "comes from start()");
  }
}

TEST_CASE("transformer: sizes that cannot be") {
  nn::BlockOptions sheet{.attention = options("full", true)};
  CHECK_ERROR(nn::Transformer(sheet, -1), "wanted 0 layers or more, got -1");
  sheet.hidden = -1;
  CHECK_ERROR(nn::TransformerBlock(sheet), "hidden is 0 or more, got -1");
  sheet.attention.key_width = -1;
  CHECK_ERROR(nn::Attention(sheet.attention), "a head's width is 0, by default, or more, got -1");
}

}  // TEST_SUITE("nn")
