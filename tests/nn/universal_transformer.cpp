#include "nn/universal_transformer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/tape.h"
#include "nn/optimizer.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "runtime/allocator.h"
#include "tests/nn/checks.h"
#include "tests/nn/reference_model.h"
#include "tests/nn/tiny_text_model.h"
#include "tests/threads.h"

using namespace weft;

namespace {

UniversalTransformerConfig paper(const std::string& attention, const std::string& encoding) {
  return {.attention = attention, .encoding = encoding};
}

// All four of the paper's models at a small size, and the forms that are not in the paper.
std::vector<UniversalTransformerConfig> forms() {
  std::vector<UniversalTransformerConfig> list;
  for (const char* attention : {"full", "agglomerative"}) {
    for (const char* encoding : {"position", "conv"})
      list.push_back(tiny_text_model(attention, encoding));
  }
  list.push_back(tiny_text_model("full", "conv"));
  list.back().act = false;
  list.push_back(tiny_text_model("agglomerative", "position"));
  list.back().wiring = "vanilla";
  for (const char* encoding : {"position", "conv"}) {
    list.push_back(tiny_text_model("full", encoding));
    list.back().wiring = "prenorm";
    list.back().hidden = 5;
  }
  list.back().act = false;
  list.back().shared = false;
  list.push_back(tiny_text_model("full", "rotary"));
  list.back().width = 8;
  list.push_back(list.back());
  list.back().wiring = "prenorm";
  list.back().shared = false;
  list.push_back(tiny_text_model("full", "position"));
  list.back().shared = false;
  return list;
}

std::string described(const UniversalTransformerConfig& c) {
  return fmt::format("{} {} act={} {} shared={}", c.attention, c.encoding, c.act, c.wiring,
                     c.shared);
}

Tensor rows_of(const reference::Rows& rows) {
  std::vector<double> values;
  for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
  return Tensor::from(values, {1, static_cast<i64>(rows.size()), static_cast<i64>(rows[0].size())});
}

UniversalTransformer::Output evaluate(const UniversalTransformer& model, const Tensor& ids) {
  Context context = Context::evaluation();
  return model(context, ids);
}

// The logits [V] of position t of the first sequence.
Tensor at(const Tensor& logits, i64 t) {
  return logits.slice(0, 0, 1).slice(1, t, t + 1).reshape({logits.size(2)});
}

// One training step: loss, gradients, Adadelta.
void train_step(UniversalTransformer& model, Optimizer& optimizer, std::uint32_t step) {
  const Tensor window = random_ids({4, 65}, model.config().vocabulary, 50 + step);
  const Tensor ids = window.slice(1, 0, 64).clone(), targets = window.slice(1, 1, 65).clone();
  Context context(true, 11, step);
  zero_gradients(model);
  Tape tape;
  const auto [logits, penalty] = model(context, ids);
  tape.backward(add(cross_entropy(logits, targets), penalty));
  optimizer.step(1.0);
}

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("universal transformer: logits and penalty are those of the definition") {
  for (const UniversalTransformerConfig& config : forms()) {
    CAPTURE(described(config));
    UniversalTransformer model(config, 1, f64);
    randomise(model, 3);
    const reference::Model definition(model);
    const Tensor ids = random_ids({1, 11}, 5, 4);
    const auto [logits, penalty] = evaluate(model, ids);
    const reference::Model::Result expected = definition(ids.to_vector<i64>());
    CHECK(relative_error(logits.value(), rows_of(expected.logits)) < tolerance::backward_f64);
    CHECK(penalty.value().item() == doctest::Approx(expected.penalty).epsilon(1e-12));
  }
}

TEST_CASE("universal transformer: gradients by every parameter, with dropout") {
  for (const UniversalTransformerConfig& config : forms()) {
    CAPTURE(described(config));
    UniversalTransformer model(config, 1, f64);
    randomise(model, 3);
    const Tensor ids = random_ids({2, 7}, 5, 4);
    check_gradients_of(
        model,
        [&](std::span<const Variable>) {
          Context context(true, 5, 1);
          const auto [logits, penalty] = model(context, ids);
          return std::vector<Variable>{logits, penalty};
        },
        {}, 40);
  }
}

TEST_CASE("universal transformer: the paper's parameters, part by part") {
  struct Expected {
    const char *attention, *encoding;
    i64 total, mixing, coordinates;
  };
  for (const Expected& e : {Expected{"full", "position", 64'193, 16'384, 8'512},
                            {"full", "conv", 88'513, 16'384, 32'832},
                            {"agglomerative", "position", 57'041, 9'232, 8'512},
                            {"agglomerative", "conv", 81'361, 9'232, 32'832}}) {
    UniversalTransformer model(paper(e.attention, e.encoding), 1);
    std::map<std::string, i64> parts;
    each_parameter(model, [&](const std::string& name, Parameter& parameter) {
      const std::string top = name.substr(0, name.find('.'));
      const std::string part = top == "block" ? name.substr(6, name.find('.', 6) - 6) : top;
      parts[part] += parameter.value().count();
    });
    CHECK(parameter_count(model) == e.total);
    CHECK(parts["embedding"] == 1'792);
    CHECK(parts["output"] == 4'096);
    CHECK(parts["position"] + parts["depth"] + parts["convolution"] == e.coordinates);
    CHECK(parts["attention"] == e.mixing);
    CHECK(parts["norm1"] + parts["norm2"] == 256);
    CHECK(parts["feed_forward"] == 33'088);
    CHECK(parts["halting"] == 65);
  }
}

TEST_CASE("universal transformer: the paper's attention at width 128") {
  for (const auto& [name, count] :
       {std::pair{"full", 65'536}, std::pair{"agglomerative", 34'832}}) {
    nn::Attention layer({.mechanism = name, .width = 128, .heads = 8});
    CHECK(parameter_count(layer) == count);
  }
}

TEST_CASE("universal transformer: starts as the paper's code does") {
  UniversalTransformer model(paper("full", "conv"), 1);
  const std::map<std::string, double> largest{{"halting.bias", 0.1},
                                              {"embedding.table", 0.05},
                                              {"block.norm1.gain", 1},
                                              {"convolution.weight", std::sqrt(6.0 / 512)},
                                              {"block.norm2.bias", 0},
                                              {"block.attention.qkv.weight", std::sqrt(6.0 / 256)},
                                              {"convolution.bias", 0},
                                              {"block.feed_forward.weight1", std::sqrt(6.0 / 320)},
                                              {"output.weight", std::sqrt(6.0 / 128)}};
  std::size_t seen = 0;
  each_parameter(model, [&](const std::string& name, Parameter& parameter) {
    if (largest.count(name) == 0) return;
    double most = 0;
    for (const double v : parameter.value().to(f64).to_vector<double>()) {
      most = std::max(most, std::abs(v));
    }
    CAPTURE(name);
    CHECK(std::abs(most - largest.at(name)) <= 0.01 * largest.at(name));
    ++seen;
  });
  CHECK(seen == largest.size());
}

TEST_CASE("universal transformer: dropout in training only, drawn by seed and step") {
  UniversalTransformer model(tiny_text_model("full", "conv"), 1);
  put_on_tested_device(model);
  const Tensor ids = random_ids({2, 9}, 5, 4);
  const auto logits = [&](bool training, std::uint64_t seed, std::uint32_t step) {
    Context context(training, seed, step);
    return model(context, ids).logits.value();
  };
  CHECK(same_bits(logits(false, 1, 1), logits(false, 2, 3)));
  CHECK(same_bits(logits(true, 1, 1), logits(true, 1, 1)));
  CHECK_FALSE(same_bits(logits(true, 1, 1), logits(false, 1, 1)));
  CHECK_FALSE(same_bits(logits(true, 1, 1), logits(true, 2, 1)));
  CHECK_FALSE(same_bits(logits(true, 1, 1), logits(true, 1, 2)));
}

TEST_CASE("universal transformer: each of the three dropouts counts by itself") {
  using Rate = double UniversalTransformerConfig::*;
  for (const Rate rate : {&UniversalTransformerConfig::attention_dropout,
                          &UniversalTransformerConfig::residual_dropout,
                          &UniversalTransformerConfig::output_dropout}) {
    UniversalTransformerConfig config = tiny_text_model("full", "position");
    config.attention_dropout = config.residual_dropout = config.output_dropout = 0;
    const auto differs = [&] {
      UniversalTransformer model(config, 1);
      put_on_tested_device(model);
      const Tensor ids = random_ids({2, 9}, 5, 4);
      Context context(true, 1, 1);
      return !same_bits(model(context, ids).logits.value(), evaluate(model, ids).logits.value());
    };
    CHECK_FALSE(differs());
    config.*rate = 0.5;
    CHECK(differs());
  }
}

TEST_CASE("universal transformer: a sequence sees neither its neighbours nor its future") {
  for (const UniversalTransformerConfig& config : forms()) {
    CAPTURE(described(config));
    UniversalTransformer model(config, 1);
    put_on_tested_device(model);
    const Tensor ids = random_ids({3, 9}, 5, 4), changed = ids.clone();
    changed.slice(0, 1, 2).slice(1, 6, 9).copy_from(
        Tensor::from(std::vector<i64>{4, 3, 0}, {1, 3}));
    const Tensor a = evaluate(model, ids).logits.value();
    const Tensor b = evaluate(model, changed).logits.value();
    CHECK(same_bits(a.slice(0, 0, 1), b.slice(0, 0, 1)));
    CHECK(same_bits(a.slice(0, 1, 2).slice(1, 0, 6), b.slice(0, 1, 2).slice(1, 0, 6)));
    CHECK_FALSE(same_bits(a.slice(0, 1, 2), b.slice(0, 1, 2)));
  }
}

TEST_CASE("universal transformer: steps give the logits of the whole sequence") {
  for (const UniversalTransformerConfig& config : forms()) {
    CAPTURE(described(config));
    UniversalTransformer model(config, 1);
    randomise(model, 3);
    const i64 length = 12;  // four convolution windows
    const Tensor ids = random_ids({1, length}, 5, 4);
    const std::vector<i64> list = ids.to_vector<i64>();
    const Tensor whole = evaluate(model, ids).logits.value();
    UniversalTransformer::State state = model.start();
    const Tape tape;  // steps are not recorded
    for (i64 t = 0; t < length; ++t) {
      const Tensor logits = model.step(state, list[static_cast<std::size_t>(t)]);
      CHECK(relative_error(logits, at(whole, t)) < tolerance::forward_f32_long);
    }
    CHECK(state.position == length);
    CHECK(tape.size() == 0);
  }
}

// Of every mechanism that decodes.
TEST_CASE("universal transformer: a prompt read at once gives what steps give") {
  for (const Mechanism* mechanism : mechanisms()) {
    if (mechanism->wrapper || !can_decode(AttentionSpec(mechanism->name))) continue;
    for (const char* encoding : {"position", "conv", "rotary"}) {
      CAPTURE(mechanism->name);
      CAPTURE(encoding);
      UniversalTransformerConfig config = tiny_text_model(mechanism->name, encoding);
      config.width = 8;
      const AttentionInputs inputs = attention_inputs(AttentionSpec(mechanism->name));
      const bool turns = inputs.size() > 1 && inputs[0].name == "q" && inputs[1].name == "k";
      if (encoding == std::string("rotary") && !turns) continue;
      UniversalTransformer model(config, 1);
      randomise(model, 3);
      const std::vector<i64> ids = random_ids({1, 12}, 5, 4).to_vector<i64>();
      const std::span<const i64> all(ids);
      for (const std::size_t first : {1, 5, 11}) {
        UniversalTransformer::State stepped = model.start(), at_once = model.start();
        Tensor wanted;
        for (const i64 id : all.first(first)) wanted = model.step(stepped, id);
        const Tensor got = model.step(at_once, all.first(first));
        CHECK(relative_error(got, wanted) < tolerance::forward_f32_long);
        // A second piece, after the first.
        for (const i64 id : all.subspan(first)) wanted = model.step(stepped, id);
        const Tensor rest = model.step(at_once, all.subspan(first));
        CHECK(relative_error(rest, wanted) < tolerance::forward_f32_long);
        CHECK(at_once.position == 12);
      }
    }
  }
}

TEST_CASE("universal transformer: past the trained length") {
  const Tensor ids = random_ids({1, 40}, 5, 4);
  const std::vector<i64> list = ids.to_vector<i64>();
  UniversalTransformer running(tiny_text_model("agglomerative", "conv"), 1);
  randomise(running, 3);
  const Tensor whole = evaluate(running, ids).logits.value();
  UniversalTransformer::State state = running.start();
  Tensor logits;
  for (const i64 id : list) logits = running.step(state, id);
  CHECK(relative_error(logits, at(whole, 39)) < tolerance::forward_f32_long);

  UniversalTransformer positions(tiny_text_model("full", "position"), 1);
  put_on_tested_device(positions);
  state = positions.start();
  for (std::size_t i = 0; i < 12; ++i) positions.step(state, list[i]);
  CHECK_THROWS_WITH_AS(
      positions.step(state, 1),
      "universal transformer: the model has 12 positions, and all are used; restart "
      "from a later token",
      Error);
  CHECK_THROWS_AS(evaluate(positions, ids), Error);

  // With a single block, convolution of width 1 or rotary positions, the cached keys are the whole
  // relevant past, and their order does not matter.
  for (const char* encoding : {"conv", "rotary"}) {
    UniversalTransformerConfig config = tiny_text_model("full", encoding);
    config.width = 8;
    config.depth = 1;
    config.conv_width = 1;
    UniversalTransformer window(config, 1);
    randomise(window, 3);
    state = window.start();
    for (const i64 id : list) logits = window.step(state, id);
    const Tensor last = evaluate(window, ids.slice(1, 28, 40).clone()).logits.value();
    CHECK(relative_error(logits, at(last, 11)) < tolerance::forward_f32_long);
  }
}

TEST_CASE("universal transformer: training on one thread or two gives the same bits") {
  if (tested_device() != Device{}) return;  // threads are only on the CPU
  for (const char* attention : {"full", "agglomerative"}) {
    for (const char* encoding : {"position", "conv"}) {
      UniversalTransformer one(paper(attention, encoding), 1), two(paper(attention, encoding), 1);
      for (UniversalTransformer* model : {&one, &two}) {
        const ThreadsOf team(model == &one ? 1 : 2);
        put_on_tested_device(*model);
        const auto optimizer = make_optimizer("adadelta", parameters(*model));
        for (std::uint32_t step = 0; step < 2; ++step) train_step(*model, *optimizer, step);
      }
      const std::vector<NamedParameter> a = parameters(one), b = parameters(two);
      for (std::size_t i = 0; i < a.size(); ++i) {
        CAPTURE(a[i].name);
        CHECK(same_bits(a[i].variable.value(), b[i].variable.value()));
      }
    }
  }
}

TEST_CASE("universal transformer: training asks the system for no memory after the third step" *
          not_sanitized()) {
  const ThreadsOf alone(1);  // a fixed number of tasks then holds scratch at once
  const WithCache cache;
  const bool few = few_on_device();
  const std::uint32_t steps = few ? 4 : 8;
  for (const char* attention : {"full", "agglomerative"}) {
    for (const char* encoding : {"position", "conv"}) {
      if (few && std::string(encoding) == "position") continue;
      UniversalTransformer model(paper(attention, encoding), 1);
      put_on_tested_device(model);
      const auto optimizer = make_optimizer("adadelta", parameters(model));
      for (std::uint32_t step = 0; step < 3; ++step) train_step(model, *optimizer, step);
      const MemoryCounts before = allocator(tested_device()).counts();
      for (std::uint32_t step = 3; step < steps; ++step) train_step(model, *optimizer, step);
      CHECK(allocator(tested_device()).counts().system_allocations == before.system_allocations);
      CHECK(allocator(tested_device()).counts().live == before.live);
    }
  }
}

// A model with a memory; with `layers` blocks of their own.
UniversalTransformerConfig remembering(const std::string& attention, const std::string& encoding,
                                       i64 memory, i64 layers) {
  UniversalTransformerConfig config = tiny_text_model(attention, encoding);
  config.width = 8;
  config.depth = layers;
  config.memory = memory;
  config.act = false;
  return config;
}

TEST_CASE(
    "universal transformer: a segment behind its memory is one long sequence, in the first layer") {
  for (const char* attention : {"transformer-xl", "adaptive-span:max_span=16,ramp=3"}) {
    for (const char* encoding : {"conv", "rotary", "none"}) {
      for (const char* wiring : {"universal", "prenorm"}) {
        CAPTURE(attention);
        CAPTURE(encoding);
        CAPTURE(wiring);
        UniversalTransformerConfig config = remembering(attention, encoding, 7, 1);
        config.wiring = wiring;
        UniversalTransformer model(config, 1, f64);
        randomise(model, 3);
        const Tensor ids = random_ids({2, 12}, 5, 4);
        const Tensor dlogits = random_normal({2, 5, 5}, f64, 9).to(tested_device());
        // Of the last five logits by all parameters; ids before them move nothing but keys.
        const auto logits_and_gradients = [&](const auto& logits_of) {
          zero_gradients(model);
          Tape tape;
          Context context = Context::evaluation();
          const Variable logits = logits_of(context);
          tape.backward(logits, dlogits);
          std::vector<Tensor> all{logits.value()};
          for (const NamedParameter& p : parameters(model)) all.push_back(p.variable.gradient());
          return all;
        };
        const auto whole = logits_and_gradients(
            [&](Context& context) { return slice(model(context, ids).logits, 1, 7, 12); });
        const auto parts = logits_and_gradients([&](Context& context) {
          UniversalTransformer::Memory memory = model.start_of(2);
          {
            const Tape::Pause pause;
            model(context, ids.slice(1, 0, 7).clone(), &memory);
          }
          return model(context, ids.slice(1, 7, 12).clone(), &memory).logits;
        });
        CHECK(relative_error(parts[0], whole[0]) < tolerance::forward_f64);
        // Positions before the memory have their part of the gradient in the long sequence alone.
        const std::vector<NamedParameter> names = parameters(model);
        for (std::size_t i = 0; i < names.size(); ++i) {
          const std::string& name = names[i].name;
          if (!name.starts_with("block.") || name.find("norm1") != std::string::npos) continue;
          CAPTURE(name);
          CHECK(parts[i + 1].defined() == whole[i + 1].defined());
          if (!parts[i + 1].defined()) continue;
          CHECK(relative_error(parts[i + 1], whole[i + 1]) < tolerance::backward_f64);
        }
      }
    }
  }
}

TEST_CASE(
    "universal transformer: no gradient reaches a memory, which holds the last inputs of each "
    "depth") {
  UniversalTransformer model(remembering("transformer-xl", "conv", 6, 3), 1, f64);
  randomise(model, 3);
  const auto segment = [&](std::uint64_t seed) { return random_ids({2, 4}, 5, seed); };
  UniversalTransformer::Memory memory = model.start_of(2);
  Context context = Context::evaluation();
  // Each depth keeps 6 of 4 + 4: the memory after the second segment begins with two rows of the
  // first.
  model(context, segment(1), &memory);
  const UniversalTransformer::Memory first = memory;
  model(context, segment(2), &memory);
  for (std::size_t t = 0; t < 3; ++t) {
    CHECK(same_bits(memory.steps[t].attention.slice(1, 0, 2).clone(),
                    first.steps[t].attention.slice(1, 4, 6).clone()));
    CHECK(memory.steps[t].convolution.window.shape() == Shape{2, 3, 8});
  }
  // The gradients of a segment are those of a function of the weights whose memory is a constant.
  check_gradients_of(
      model,
      [&](std::span<const Variable>) {
        UniversalTransformer::Memory fixed = memory;
        Context training(true, 5, 1);
        return std::vector<Variable>{model(training, segment(3), &fixed).logits};
      },
      {}, 40);
  CHECK_THROWS_WITH_AS(model(context, random_ids({3, 4}, 5, 1), &memory),
                       "universal transformer: wanted a memory [3,6,8] for 3 texts, got [2,6,8]; "
                       "begin with start_of(3)",
                       Error);
}

TEST_CASE("universal transformer: in bf16 a segment of one position follows others") {
  for (const char* encoding : {"conv", "none"}) {
    CAPTURE(encoding);
    const auto nats = [&](const char* precision) {
      UniversalTransformerConfig config = remembering("transformer-xl", encoding, 6, 2);
      config.precision = precision;
      UniversalTransformer model(config, 1);
      randomise(model, 3);
      UniversalTransformer::Memory memory = model.start_of(2);
      Context context = Context::evaluation();
      const Tensor ids = random_ids({2, 6}, 5, 4);
      model(context, ids.slice(1, 0, 4).clone(), &memory);
      const Tensor next = ids.slice(1, 5, 6).clone();
      const Tensor found = model.score(ids.slice(1, 4, 5).clone(), next, &memory).nats;
      CHECK(memory.steps[1].attention.dtype() ==
            (precision == std::string("bf16") ? DType::bf16 : DType::f32));
      return found;
    };
    CHECK(relative_error(nats("bf16"), nats("f32")) < 0.02);
  }
}

TEST_CASE(
    "universal transformer: with a memory steps of decoding give the logits of the segments") {
  UniversalTransformerConfig config = remembering("transformer-xl", "conv", 12, 1);
  UniversalTransformer model(config, 1, f64);
  randomise(model, 3);
  const Tensor ids = random_ids({1, 24}, 5, 4);
  UniversalTransformer::Memory memory = model.start_of(1);
  Context context = Context::evaluation();
  model(context, ids.slice(1, 0, 12).clone().to(tested_device()), &memory);
  const Tensor logits =
      model(context, ids.slice(1, 12, 24).clone().to(tested_device()), &memory).logits.value();
  UniversalTransformer::State state = model.start();
  const std::vector<i64> all = ids.to_vector<i64>();
  model.step(state, std::span(all).first(12));
  for (i64 t = 0; t < 12; ++t) {
    const Tensor stepped = model.step(state, all[static_cast<std::size_t>(12 + t)]);
    CHECK(relative_error(stepped, at(logits, t)) < tolerance::backward_f64);
  }
}

TEST_CASE("universal transformer: settings out of range are errors that name them") {
  const auto make = [](const auto& change) {
    UniversalTransformerConfig config = tiny_text_model("full", "position");
    change(config);
    UniversalTransformer(config, 1);
  };
  CHECK_THROWS_WITH_AS(make([](auto& c) { c.encoding = "rotate"; }),
                       "universal transformer: the encoding is position, conv, rotary or none, "
                       "got 'rotate'",
                       Error);
  CHECK_THROWS_WITH_AS(make([](auto& c) {
                         c.encoding = "rotary";
                         c.attention = "agglomerative";
                       }),
                       "attention: rotary positions rotate the inputs q and k, but agglomerative "
                       "takes zq, zk, y; use full, or another encoding",
                       Error);
  CHECK_THROWS_WITH_AS(make([](auto& c) { c.encoding = "rotary"; }),
                       "attention: rotary positions rotate pairs of features: a head has 3, wanted "
                       "an even number",
                       Error);
  CHECK_THROWS_WITH_AS(
      make([](auto& c) { c.memory = 4; }),
      "memory: the encoding position counts from the beginning of a segment, so that the memory "
      "before it would have no positions; use conv, rotary or none",
      Error);
  CHECK_THROWS_WITH_AS(make([](auto& c) { c.memory = 4, c.encoding = "none"; }),
                       "memory: full takes no keys before its queries; use transformer-xl or "
                       "adaptive-span",
                       Error);
  CHECK_THROWS_WITH_AS(make([](auto& c) { c.memory = -1; }),
                       "memory: wanted 0 or more positions, got -1", Error);
  CHECK_THROWS_WITH_AS(make([](auto& c) { c.depth = 0; }),
                       "universal transformer: depth must be at least 1, got 0", Error);
  CHECK_THROWS_WITH_AS(make([](auto& c) { c.output_dropout = 0.999999; }),
                       "universal transformer: the dropout rate must be in [0, 1), in steps of "
                       "1/65536, got 0.999999",
                       Error);
  CHECK_THROWS_AS(make([](auto& c) { c.wiring = "pre"; }), Error);
  CHECK_THROWS_AS(make([](auto& c) { c.output_dropout = 1; }), Error);
  CHECK_THROWS_AS(make([](auto& c) { c.residual_dropout = -0.1; }), Error);
  CHECK_THROWS_AS(make([](auto& c) { c.attention_dropout = NAN; }), Error);
  CHECK_THROWS_AS(make([](auto& c) { c.l2 = -1; }), Error);
  CHECK_THROWS_AS(make([](auto& c) { c.heads = 4; }), Error);
  CHECK_THROWS_AS(make([](auto& c) { c.attention = "unheard-of"; }), Error);
}

}  // TEST_SUITE("nn")
