// What an attention layer makes for its mechanism, tested with the toy block; biases by position.
#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <thread>

#include "autograd/tape.h"
#include "nn/attention.h"
#include "nn/checkpoint.h"
#include "nn/initializer.h"
#include "nn/optimizer.h"
#include "nn/transformer.h"
#include "nn/universal_transformer.h"
#include "nn/vision_transformer.h"
#include "ops/linear/linear.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "tests/attention/toy.h"
#include "tests/check.h"
#include "tests/nn/checks.h"
#include "tests/nn/reference.h"

namespace weft {
namespace {

nn::AttentionOptions toy(const std::string& options = "", i64 width = 6) {
  return {
      .mechanism = "toy" + options, .width = width, .heads = 2, .causal = true, .max_length = 20};
}

std::vector<std::string> names_of(auto& module) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors(module)) names.push_back(tensor.name);
  return names;
}

Tensor output_of(const auto& layer, const Tensor& x) {
  Context context = Context::evaluation();
  return layer(context, Variable(x.to(tested_device()))).value().to(Device{});
}

// Full attention whose projections are columns of one matrix with a bias, which no mechanism of the
// papers has.
Mechanism biased_full() {
  const auto inputs = [](const AttentionSpec&, const AttentionSizes& sizes) {
    AttentionInputs inputs = attention_inputs(AttentionSpec("full"), sizes);
    inputs.resize(3);
    for (AttentionInput& input : inputs) {
      input.matrix = "qkv", input.biased = true, input.bias = {Initializer::uniform, 0.1};
    }
    return inputs;
  };
  const auto attended = [](const AttentionSpec&, const AttentionCall& call,
                           std::span<const Variable> inputs) {
    return attend(AttentionSpec("full"), call, inputs);
  };
  return {.name = "toy-biased",
          .title = "full attention of projections with biases",
          .paper = "none",
          .equations = "ops/attention/full/full.h",
          .kind = Kind::composition,
          .inputs = inputs,
          .masks = {.causal = true, .lengths = true, .query_lengths = true},
          .cross = true,
          .strictly_causal = true,
          .unordered_keys = true,
          .linear_in_values = true,
          .row_sums = RowSums::one,
          .scaling = "N S",
          .memory = "N S",
          .attend = attended,
          .reference = attended};
}

const Registration registered_biased{biased_full()};

// The inputs of the mechanism in a call of the layer.
std::vector<Variable> inputs_in(const nn::Attention& layer, const Variable& x,
                                const Variable& memory = {}) {
  std::vector<Variable> seen;
  Context context = Context::evaluation();
  context.attending = [&](const AttentionSpec&, const AttentionCall&,
                          std::span<const Variable> inputs) {
    seen.assign(inputs.begin(), inputs.end());
  };
  layer(context, x, {}, memory);
  return seen;
}

reference::Rows rows_of(const Tensor& x, i64 b) {
  const std::vector<double> values = x.slice(0, b, b + 1).to(Device{}).to_vector<double>();
  const auto width = values.size() / static_cast<std::size_t>(x.size(1));
  reference::Rows rows;
  for (std::size_t i = 0; i < values.size(); i += width) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i);
    rows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(width));
  }
  return rows;
}

void check_rows(const Tensor& got, i64 b, const reference::Rows& wanted) {
  const reference::Rows rows = rows_of(got, b);
  REQUIRE(rows.size() == wanted.size());
  for (std::size_t n = 0; n < rows.size(); ++n) {
    REQUIRE(rows[n].size() == wanted[n].size());
    for (std::size_t c = 0; c < rows[n].size(); ++c) {
      CHECK(rows[n][c] == doctest::Approx(wanted[n][c]).epsilon(1e-12));
    }
  }
}

TEST_SUITE("nn") {

TEST_CASE("roles: projected inputs are columns of a product, of the sequence that is theirs") {
  nn::Attention layer({.mechanism = "toy-biased", .width = 6, .heads = 2, .causal = false}, f64);
  randomise(layer, 3);
  const reference::Weights weights(layer);
  const Tensor x = random_normal({2, 5, 6}, f64, 1), memory = random_normal({2, 4, 6}, f64, 2);
  for (const bool alone : {true, false}) {
    CAPTURE(alone);
    const std::vector<Variable> inputs =
        inputs_in(layer, Variable(x.to(tested_device())),
                  alone ? Variable() : Variable(memory.to(tested_device())));
    REQUIRE(inputs.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      for (i64 b = 0; b < 2; ++b) {
        const reference::Rows rows = rows_of(alone || i == 0 ? x : memory, b);
        check_rows(inputs[i].value(), b,
                   weights.affine(rows, "qkv.weight", "qkv.bias", 6 * i, 6 * i + 6));
      }
    }
  }
}

TEST_CASE("roles: an input through hidden layers has a ReLU behind each") {
  nn::Attention layer(toy(), f64);
  randomise(layer, 3);
  const reference::Weights weights(layer);
  const Tensor x = random_normal({2, 5, 6}, f64, 1);
  const std::vector<Variable> inputs = inputs_in(layer, Variable(x.to(tested_device())));
  for (i64 b = 0; b < 2; ++b) {
    reference::Rows hidden = weights.linear(rows_of(x, b), "gate.0");
    for (auto& row : hidden) {
      for (double& value : row) value = std::max(value, 0.0);
    }
    check_rows(inputs[1].value(), b, weights.linear(hidden, "gate.1"));
  }
}

TEST_CASE("roles: a call knows its layer, its depth, and how many applications there are") {
  std::vector<std::array<int, 3>> places;
  const auto placed = [&](const auto& run) {
    places.clear();
    Context context = Context::evaluation();
    context.attending = [&](const AttentionSpec&, const AttentionCall& call,
                            std::span<const Variable>) {
      places.push_back({call.layer, call.depth, call.layers});
    };
    run(context);
    return places;
  };
  using Places = std::vector<std::array<int, 3>>;
  const Places layers = {{0, 0, 3}, {1, 0, 3}, {2, 0, 3}};
  nn::Transformer stack({.attention = toy(), .hidden = 5}, 3, f64);
  randomise(stack, 3);
  const Variable x(random_normal({1, 5, 6}, f64, 1).to(tested_device()));
  CHECK(placed([&](Context& context) { stack(context, x); }) == layers);
  for (const bool shared : {false, true}) {
    CAPTURE(shared);
    UniversalTransformer model({.vocabulary = 7,
                                .width = 6,
                                .depth = 3,
                                .heads = 2,
                                .length = 5,
                                .attention = "full",
                                .shared = shared},
                               1, f64);
    randomise(model, 3);
    const Tensor ids = Tensor::from(std::vector<i64>{1, 2, 3}, {1, 3}).to(tested_device());
    CHECK(placed([&](Context& context) { model(context, ids); }) ==
          (shared ? Places{{0, 0, 3}, {0, 1, 3}, {0, 2, 3}} : layers));
  }
}

TEST_CASE("roles: a layer makes maps of several layers, parameters, buffers and an output map") {
  nn::Attention same(toy()), wider(toy(":width=4"));
  CHECK(names_of(same) == std::vector<std::string>{"gate.0.weight", "gate.0.bias", "gate.1.weight",
                                                   "gate.1.bias", "w", "table", "omega"});
  CHECK(names_of(wider).back() == "omega");
  CHECK(parameters(wider).back().name == "output.weight");
  CHECK(parameters(wider).back().variable.shape() == Shape{4, 6});
  initialize(wider, 1);
  move_to(wider, tested_device());
  CHECK(output_of(wider, random_normal({2, 9, 6}, DType::f32, 1)).shape() == Shape{2, 9, 6});
  nn::AttentionOptions endless = toy();
  endless.max_length = 0;
  CHECK_ERROR(nn::Attention(endless), "toy has parameters table [⌈N_max/step⌉ d] by position");
}

TEST_CASE("roles: drawn inputs stay until their period has passed, and are part of a checkpoint") {
  nn::Attention layer(toy());
  initialize(layer, 7);
  move_to(layer, tested_device());
  const std::vector<NamedBuffer> drawn = buffers(layer);
  REQUIRE(drawn.size() == 1);
  const auto values = [&] { return drawn[0].buffer.value.to(Device{}).to_vector<float>(); };
  const std::vector<float> first = values();
  const Tensor x = random_normal({1, 5, 6}, DType::f32, 2);
  const Tensor out = output_of(layer, x);
  CHECK(same_bits(output_of(layer, x), out));
  for (const std::uint32_t step : {1, 2, 3}) redraw(drawn, 7, step);
  CHECK(values() == first);
  std::map<std::string, Tensor> kept = tensors_of(tensors(layer));
  for (auto& [name, tensor] : kept) tensor = tensor.clone();
  redraw(drawn, 7, 4);
  const std::vector<float> second = values();
  CHECK(second != first);
  CHECK_FALSE(same_bits(output_of(layer, x), out));
  redraw(drawn, 7, 7);
  CHECK(values() != second);
  redraw(drawn, 7, 4);  // a function of seed, step and name
  CHECK(values() == second);
  redraw(drawn, 7, 7);
  redraw(drawn, 7, 7, 6);
  CHECK(values() == second);
  redraw(drawn, 7, 6, 3);
  CHECK(values() == first);
  redraw(drawn, 7, 4);
  load_tensors(tensors(layer), kept, "kept");
  CHECK(values() == first);
  CHECK(same_bits(output_of(layer, x), out));
}

TEST_CASE("roles: what is drawn by length is that of the layer's seed, which a checkpoint holds") {
  const nn::AttentionOptions options{
      .mechanism = "bigbird:block=2,random=2", .width = 6, .heads = 2, .causal = false};
  nn::Attention layer(options), other(options), plain({.mechanism = "full"});
  CHECK(names_of(layer).back() == "seed");
  CHECK(buffers(plain).empty());
  for (const auto& [each, seed] : {std::pair{&layer, 7}, std::pair{&other, 8}}) {
    initialize(*each, static_cast<std::uint64_t>(seed));
    move_to(*each, tested_device());
    CHECK(buffers(*each)[0].buffer.value.device() == Device{});
  }
  const Tensor x = random_normal({1, 60, 6}, DType::f32, 2);
  const Tensor out = output_of(layer, x);
  for (const std::uint32_t step : {1, 2}) {  // in training, for any step and seed of the run
    Context context(true, 5 + step, step);
    context.random.next();
    CHECK(same_bits(layer(context, Variable(x.to(tested_device()))).value().to(Device{}), out));
  }
  std::map<std::string, Tensor> kept = tensors_of(tensors(layer));
  const Tensor seed = kept.at("seed");
  kept["seed"] = tensors_of(tensors(other)).at("seed").clone();
  load_tensors(tensors(other), kept, "kept");
  CHECK_FALSE(same_bits(output_of(other, x), out));  // by its own seed
  kept["seed"] = seed;
  load_tensors(tensors(other), kept, "kept");
  CHECK(same_bits(output_of(other, x), out));
  seed.fill(-1);
  CHECK_ERROR(output_of(layer, x), "attention: wanted a whole number as its seed, got -1");
}

TEST_CASE("roles: penalties gather in the context, and bounds hold after the update") {
  nn::Transformer body({.attention = toy(), .wiring = nn::BlockWiring::vanilla}, 2);
  initialize(body, 3);
  move_to(body, tested_device());
  const auto optimizer = make_optimizer("sgd", parameters(body));
  Tape tape;
  Context context(true, 3, 1);
  const Variable out =
      body(context, Variable(random_normal({2, 6, 6}, DType::f32, 4).to(tested_device())));
  CHECK(context.penalties.size() == 2);
  CHECK(context.penalty().value().item() == doctest::Approx(2 * 0.1 * 0.5));
  tape.backward(context.penalty());
  optimizer->step(1e6);  // far below 0 without the bounds
  int tables = 0;
  for (const NamedParameter& p : parameters(body)) {
    if (!p.name.ends_with("table")) continue;
    ++tables;
    for (const float w : p.variable.value().to(Device{}).to_vector<float>()) CHECK(w == 0);
  }
  CHECK(tables == 2);
}

TEST_CASE(
    "roles: a checkpoint whose tensor is outside its bounds is refused, and nothing is loaded") {
  nn::Attention layer(
      {.mechanism = "adaptive-span:max_span=5", .width = 6, .heads = 2, .causal = true});
  initialize(layer, 3);
  std::map<std::string, Tensor> kept;
  for (const auto& [name, value] : tensors_of(tensors(layer))) kept[name] = value.clone();
  CHECK(kept.contains("key_pe"));  // exists, though it is optional in a call
  for (const float span : kept.at("span").to_vector<float>()) CHECK(span == 0);
  kept.at("span").fill(0.5);
  load_tensors(tensors(layer), kept, "kept");
  kept.at("key_pe").fill(7);
  for (const double outside : {1.5, -0.25}) {
    kept.at("span").slice(0, 1, 2).fill(outside);
    const std::string wanted = fmt::format("kept: 'span' holds {}, outside [0, 1]", outside);
    CHECK_ERROR(load_tensors(tensors(layer), kept, "kept"), wanted.c_str());
  }
  CHECK(tensors_of(tensors(layer)).at("span").to_vector<float>() == std::vector<float>{0.5F, 0.5F});
  CHECK(tensors_of(tensors(layer)).at("key_pe").to_vector<float>()[0] != 7);
}

TEST_CASE(
    "roles: around a block with its own residual a transformer block adds and normalises nothing") {
  nn::BlockOptions options{.attention = toy("-residual")};
  nn::TransformerBlock block(options);
  for (const std::string& name : names_of(block)) CHECK(name.find("norm1") == std::string::npos);
  initialize(block, 2);
  move_to(block, tested_device());
  const Tensor x = random_normal({1, 4, 6}, DType::f32, 1).to(tested_device());
  Context context = Context::evaluation();
  const Variable y = block.attention(context, Variable(x));
  const Variable wanted = block.norm2(y, block.feed_forward(y), {.dropout_on = DropoutOn::sum});
  Context again = Context::evaluation();
  CHECK(same_bits(block(again, Variable(x)).value(), wanted.value()));
}

TEST_CASE(
    "roles: MEGA's layers are the block and a feed-forward map with SiLU and a norm before it") {
  const std::string spec = "mega:key_width=3,value_width=5,states=2";
  const Tensor x = random_normal({2, 4, 6}, f64, 1);
  nn::TransformerBlock block(
      {.attention = {.mechanism = spec, .width = 6, .heads = 2, .max_length = 9},
       .hidden = 7,
       .wiring = nn::BlockWiring::prenorm},
      f64);
  nn::VisionBlock picture({.width = 6, .heads = 2, .hidden = 7, .attention = spec}, f64);
  randomise(block, 3), randomise(picture, 4);
  const auto check = [&](const auto& layer, const auto& up, const auto& down) {
    Context context = Context::evaluation();
    const Variable y = layer.attention(context, Variable(x.to(tested_device())));
    const Variable wanted = add(y, down(silu(up(layer.norm2(y)))));
    CHECK(relative_error(output_of(layer, x), wanted.value().to(Device{})) <=
          tolerance::forward_f64);
  };
  const nn::FeedForward& map = block.feed_forward;
  check(
      block, [&](const Variable& h) { return linear(h, map.weight1, map.bias1); },
      [&](const Variable& h) { return linear(h, map.weight2, map.bias2); });
  check(picture, picture.up, picture.down);
  // A causal layer learns the averages of the past alone.
  const auto sets = [](auto& layer) {
    for (const NamedTensor& each : tensors(layer)) {
      CHECK(each.name.find("norm1") == std::string::npos);
      if (each.name.ends_with("ema_beta")) return each.value.size(0);
    }
    return i64{0};
  };
  CHECK(sets(block) == 1);
  CHECK(sets(picture) == 2);
}

TEST_CASE(
    "roles: a universal transformer of toys trains, its penalty in the loss, and reads a prompt at "
    "once") {
  UniversalTransformerConfig config{.vocabulary = 11,
                                    .width = 6,
                                    .depth = 2,
                                    .heads = 2,
                                    .length = 12,
                                    .attention = "toy:step=3"};
  config.attention_dropout = config.residual_dropout = config.output_dropout = 0;
  config.act = false;
  config.l2 = 0;
  for (const std::string attention : {"toy:step=3", "full", "agglomerative"}) {
    for (const std::string encoding : {"position", "conv"}) {
      CAPTURE(attention);
      CAPTURE(encoding);
      config.attention = attention, config.encoding = encoding;
      UniversalTransformer model(config, 5, f64);
      move_to(model, tested_device());
      const std::vector<i64> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5};
      Context context = Context::evaluation();
      const auto [logits, penalty] = model(context, Tensor::from(ids, {1, 9}).to(tested_device()));
      CHECK(penalty.value().item() ==
            doctest::Approx(attention == "toy:step=3" ? 2 * 0.1 * 0.5 : 0));
      const Tensor wanted = logits.value().to(Device{});
      UniversalTransformer::State state = model.start();
      i64 read = 0;
      for (const i64 end : {5, 6, 9}) {
        const Tensor got =
            model.step(state, std::span(ids).subspan(std::size_t(read), std::size_t(end - read)));
        CHECK(relative_error(got.to(Device{}), wanted.slice(1, end - 1, end).reshape({11})) <=
              1e-12);
        read = end;
      }
    }
  }
}

TEST_CASE("position bias: alibi falls with the distance, relative learns a number a distance") {
  const Device cpu;
  const nn::PositionBias alibi("alibi", 4, 0, f64);
  const Tensor bias = alibi(cpu, 2, 3, 5).value();
  REQUIRE(bias.shape() == Shape{1, 4, 3, 5});
  const View<double, 4> at = bias.view<double, 4>();
  for (i64 h = 0; h < 4; ++h) {
    for (i64 i = 0; i < 3; ++i) {
      for (i64 j = 0; j < 5; ++j) {
        CHECK(at(0, h, i, j) == -std::pow(2.0, -2.0 * double(h + 1)) * std::abs(double(2 + i - j)));
      }
    }
  }
  nn::PositionBias relative("relative", 2, 3, f64);
  initialize(relative, 1);
  const Tensor table = parameters(relative)[0].variable.value();
  REQUIRE(table.shape() == Shape{5, 2});
  const Tensor learnt = relative(cpu, 1, 4, 5).value();
  for (i64 h = 0; h < 2; ++h) {
    for (i64 i = 0; i < 4; ++i) {
      for (i64 j = 0; j < 5; ++j) {
        const i64 row = std::clamp<i64>(j - i - 1, -2, 2) + 2;
        CHECK(learnt.view<double, 4>()(0, h, i, j) == table.view<double, 2>()(row, h));
      }
    }
  }
  CHECK_ERROR(nn::PositionBias("other", 2, 3, f64), "alibi or relative, got 'other'");
  CHECK_ERROR(nn::PositionBias("relative", 2, 0, f64), "need the longest sequence");
  CHECK_ERROR(nn::Attention(
                  {.mechanism = "agglomerative", .width = 6, .heads = 2, .position_bias = "alibi"}),
              "agglomerative takes no bias");
}

TEST_CASE("position bias: several threads may evaluate one layer") {
  const nn::PositionBias alibi("alibi", 2, 0, f64);
  std::atomic<int> wrong = 0;
  std::latch both(2);
  std::vector<std::thread> threads;
  for (const i64 n : {3, 5}) {
    threads.emplace_back([&, n] {
      both.arrive_and_wait();
      for (int call = 0; call < 20'000; ++call) {
        const Tensor bias = alibi(Device(), 0, n, n).value();
        wrong +=
            bias.shape() != Shape{1, 2, n, n} || bias.data<double>()[n - 1] != -double(n - 1) / 16;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("position bias: gradients, and decoding as the whole sequence, past the capacity too") {
  for (const std::string kind : {"alibi", "relative"}) {
    CAPTURE(kind);
    nn::Attention layer({.mechanism = "full",
                         .width = 6,
                         .heads = 2,
                         .causal = true,
                         .max_length = 8,
                         .position_bias = kind},
                        f64);
    check_gradients_of(layer);
    move_to(layer, tested_device());
    const Tensor x = random_normal({1, 12, 6}, f64, 2);
    for (const i64 capacity : {12, 5}) {
      nn::Attention::State state = layer.start(capacity);
      i64 begin = 0;
      for (const i64 end : {4, 5, 7, 12}) {
        const Tensor got =
            layer.step(state, Variable(x.slice(1, begin, end).to(tested_device()))).value();
        for (i64 i = begin; i < end; ++i) {
          // The last `capacity` positions are kept, whose distances are unchanged.
          const i64 first = std::max<i64>(0, i + 1 - capacity);
          const Tensor whole = output_of(layer, x.slice(1, first, i + 1));
          CHECK(relative_error(got.slice(1, i - begin, i - begin + 1).to(Device{}),
                               whole.slice(1, i - first, i - first + 1)) <= 1e-12);
        }
        begin = end;
      }
    }
  }
}

}  // TEST_SUITE("nn")

}  // namespace
}  // namespace weft
