// Bad calls of every registered mechanism: each throws, and the message has the mechanism and the
// shapes.
#include <algorithm>

#include "tests/attention/sample.h"

namespace weft {
namespace {

const AttentionSizes sizes{.B = 2, .N = 5, .S = 5, .H = 3, .E = 4, .M = 6};

// The message of the error on a device.
std::string message_on(Device device, const Sample& sample) {
  const Device tested = tested_device();
  set_tested_device(device);
  std::string message;
  try {
    sample.output();
  } catch (const Error& error) {
    message = error.what();
  }
  set_tested_device(tested);
  return message;
}

// Throws, with the same message on every device, which contains the mechanism's name and all of
// `parts`.
void check_error(const Sample& sample, const std::vector<std::string>& parts) {
  CAPTURE(sample.text);
  const std::string message = message_on(tested_device(), sample);
  CAPTURE(message);
  CHECK(message == message_on(Device{}, sample));
  const AttentionSpec* const inner = sample.spec.inner();
  const bool of_inner = inner != nullptr && message.rfind(inner->mechanism().name + ":", 0) == 0;
  CHECK((of_inner || message.rfind(sample.mechanism().name + ":", 0) == 0));
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

std::string shape_of(const Tensor& x) { return fmt::format("{}", x.shape()); }

TEST_SUITE("attention") {

TEST_CASE("every mechanism: shapes that do not fit") {
  for (const Sample& sample : samples(sizes, DType::f32, plain)) {
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      const Tensor& input = sample.inputs[i];
      std::vector<Tensor> inputs = sample.inputs;
      inputs[i] = input.reshape(input.rank() == 1 ? Shape{1, input.count()} : Shape{input.count()});
      check_error(sample.with(inputs), {sample.sheets()[i].name, shape_of(inputs[i])});
      for (int axis = 0; axis < input.rank(); ++axis) {
        // An axis that no other input has may have any size.
        const std::string word = axes_of(sample.sheets()[i])[static_cast<std::size_t>(axis)];
        std::size_t sharing = 0;
        for (std::size_t j = 0; j < sample.inputs.size(); ++j) {
          const std::vector<std::string> others = axes_of(sample.sheets()[j]);
          sharing += std::count(others.begin(), others.end(), word) > 0;
        }
        if (sharing < 2) continue;
        Shape shape = input.shape();
        shape[axis] += 2;
        inputs[i] = random_normal(shape, DType::f32, 3);
        check_error(sample.with(inputs), {shape_of(inputs[i])});
      }
    }
  }
}

TEST_CASE("every mechanism: inputs missing, too many, or empty") {
  for (const Sample& sample : samples(sizes, DType::f32, plain)) {
    std::vector<Tensor> inputs = sample.inputs;
    if (inputs.size() > 1) {
      inputs.resize(1);
      check_error(sample.with(inputs), {"missing", shape_of(inputs[0])});
    }
    check_error(sample.with({}), {"missing"});
    inputs.assign(sample.sheets().size() + 1, sample.inputs[0]);
    check_error(sample.with(inputs), {"at most", shape_of(inputs[0])});
    for (const char symbol : {'H', 'S'}) {
      AttentionInputs there = sample.sheets();
      there.resize(sample.inputs.size());
      const bool known = std::ranges::any_of(
          there, [&](const auto& input) { return position_axis(input, symbol) >= 0; });
      if (!known) continue;
      inputs.clear();
      AttentionSizes empty = sizes;
      (symbol == 'H' ? empty.H : empty.S) = 0;
      for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
        const AttentionInputs sheets = attention_inputs(sample.spec, empty);
        inputs.push_back(Tensor::zeros(sheets[i].shape, DType::f32));
      }
      check_error(sample.with(inputs), {"is 0"});
    }
  }
}

TEST_CASE("every mechanism: tensors on two devices") {
  if (tested_device() == Device{}) return;
  for (const Sample& sample : samples(sizes, DType::f32, plain)) {
    for (std::size_t i = 0; i < sample.inputs.size() && sample.inputs.size() > 1; ++i) {
      CAPTURE(sample.text);
      const std::vector<Tensor> moved = on_device(sample.inputs);
      std::vector<Variable> inputs(moved.begin(), moved.end());
      inputs[i] = sample.inputs[i];
      CHECK_ERROR(attend(sample.spec, sample.call, inputs), "one device");
    }
  }
}

TEST_CASE("every mechanism: element types") {
  for (const Sample& sample : samples(sizes, DType::f32, plain)) {
    std::vector<Tensor> inputs = sample.inputs;
    if (inputs.size() > 1) {
      inputs.back() = inputs.back().to(DType::f64);
      check_error(sample.with(inputs), {"f64", "f32", shape_of(inputs[0])});
    }
    for (Tensor& input : inputs) input = input.to(DType::i64);
    check_error(sample.with(inputs), {"f32, f64 or bf16", "i64", shape_of(inputs[0])});
  }
  const auto zeros = [](DType type) { return Tensor::zeros({1, 2, 1, 3}, type); };
  const std::vector<Variable> three{zeros(DType::f32), zeros(DType::bf16), zeros(DType::f64)};
  CHECK_ERROR(attend(AttentionSpec("full"), {}, three),
              "full: wanted one element type, v is f64 and the first input f32");
}

TEST_CASE("every mechanism: lengths") {
  for (const Sample& sample : samples(sizes, DType::f32, plain)) {
    const auto with_lengths = [&](const Tensor& lengths, bool of_queries) {
      Sample changed = sample;
      (of_queries ? changed.call.query_lengths : changed.call.lengths) = lengths;
      return changed;
    };
    for (const bool of_queries : {false, true}) {
      const Masks& masks = sample.mechanism().masks;
      if (!(of_queries ? masks.query_lengths : masks.lengths)) {
        check_error(with_lengths(lengths_of({5, 2}), of_queries), {"lengths", "use full"});
        continue;
      }
      check_error(with_lengths(lengths_of({5, 2, 1}), of_queries), {"lengths", "[3]", "[2]"});
      check_error(with_lengths(lengths_of({5, 6}), of_queries), {"lengths", "6", "0 … 5"});
      check_error(with_lengths(lengths_of({-1, 5}), of_queries), {"lengths", "-1"});
      check_error(with_lengths(lengths_of({5, 2}).to(DType::f32), of_queries), {"i64", "f32"});
    }
  }
}

TEST_CASE("every mechanism: masks and rates") {
  for (const Sample& sample : samples(sizes, DType::f32, plain)) {
    for (const double rate : {-0.1, 1.0, 1.5}) {
      Sample changed = sample;
      changed.call.dropout = rate;
      check_error(changed, {"dropout", fmt::format("{}", rate)});
    }
    if (sample.mechanism().masks.causal) continue;
    Sample changed = sample;
    changed.call.causal = true;
    check_error(changed, {"causal"});
  }
  AttentionSizes unequal = sizes;
  unequal.S = 7;
  for (const Sample& sample : samples(unequal, DType::f32, plain)) {
    if (!sample.mechanism().masks.causal) continue;
    Sample changed = sample;
    changed.call.causal = true;
    check_error(changed, {"N = 5", "S = 7"});
  }
}

// The given values of a choice, with one element replaced.
Sample with_value(const Sample& sample, const std::string& choice, i64 element, i64 value) {
  Sample changed = sample;
  Tensor& given = changed.call.given.at(choice);
  given = given.clone();
  given.data<i64>()[element] = value;
  return changed;
}

TEST_CASE("every mechanism: choices that cannot be") {
  const Variety with_options{
      .causal = false, .lengths = false, .query_lengths = false, .dropout = false};
  for (const Sample& sample : samples(sizes, DType::f32, with_options)) {
    const Sample fixed = sample.decided();
    for (const AttentionChoice& choice : sample.mechanism().choices) {
      if (!choice.integer || !fixed.call.given.contains(choice.name)) continue;
      if (choice.values == nullptr) continue;  // any number is valid
      const Tensor& given = fixed.call.given.at(choice.name);
      const i64* const values = given.data<i64>();
      const auto refused = [&](i64 element, i64 value, const std::string& why) {
        check_error(with_value(fixed, choice.name, element, value),
                    {"the given " + choice.name + "[", fmt::format("] is {};", value), why});
      };
      refused(0, -2, "wanted");
      // Positions and shifts are taken modulo the length.
      const bool bounded = choice.name != "positions" && choice.name != "shifts";
      if (bounded) refused(given.count() - 1, i64{1} << 40, "wanted 0 … ");
      if (choice.order != ChoiceOrder::ascending) refused(0, -1, "wanted");
      if (choice.order == ChoiceOrder::permutation) {
        refused(given.size(2), values[0], "wanted a permutation");
      }
      if (choice.order == ChoiceOrder::ascending && given.shape().back() > 1) {
        refused(1, values[0], fmt::format("after {}", values[0]));
        check_error(with_value(fixed, choice.name, 0, -1),
                    {fmt::format("] is {}; after -1", values[1])});
      }
    }
  }
}

TEST_CASE("every mechanism: what stands past the lengths of a choice is not looked at") {
  const Variety with_lengths{.causal = false, .dropout = false, .options = false, .extras = false};
  for (const Sample& sample : samples(sizes, DType::f32, with_lengths)) {
    if (sample.mechanism().wrapper) continue;
    Sample fixed = sample.decided(), changed = fixed;
    for (const char* name : {"buckets", "labels", "src", "global_mask"}) {
      if (!fixed.call.given.contains(name)) continue;
      Tensor& given = changed.call.given.at(name);
      given = given.clone();
      const int axis = std::string(name) == "src" ? 1 : given.rank() - 1;
      const int items = std::string(name) == "buckets" ? 1 : 0;
      for (i64 b = 0; b < sizes.B; ++b) {
        given.slice(items, b, b + 1).slice(axis, sample.queries(b), sample.sizes.N).fill(1 << 20);
      }
    }
    CAPTURE(sample.text);
    Choices reported, wanted;
    changed.call.chosen = &reported, fixed.call.chosen = &wanted;
    CHECK(same_bits(changed.output(), fixed.output()));
    for (const auto& [name, choice] : wanted) CHECK(same_bits(reported.at(name), choice));
  }
}

TEST_CASE(
    "every mechanism: no items, and a block of no positions, give nothing and send zeros back") {
  AttentionSizes no_items = sizes, no_positions = sizes;
  no_items.B = 0, no_positions.N = no_positions.S = 0;
  for (const AttentionSizes& empty : {no_items, no_positions}) {
    for (const Sample& sample : samples(empty, DType::f32)) {
      if (empty.B > 0 && sample.mechanism().kind != Kind::block) continue;
      // The tests' own: plain ops that do not run over no items, and return no gradient.
      if (sample.mechanism().name.starts_with("toy")) continue;
      CAPTURE(sample.text);
      const Run run = sample.run();
      CHECK(run.outputs[0].shape() == sample.output_shape());
      for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
        CAPTURE(i);
        CHECK(run.gradients[i].shape() == sample.inputs[i].shape());
        if (run.outputs.size() > 1) continue;  // a penalty has gradients without items
        for (const double g : run.gradients[i].to(DType::f64).to_vector<double>()) CHECK(g == 0);
      }
    }
  }
}

TEST_CASE("every mechanism: the fact sheet is complete") {
  CHECK(mechanisms().size() >= 2);
  for (const Mechanism* mechanism : mechanisms()) {
    CAPTURE(mechanism->name);
    for (const std::string& text :
         {mechanism->title, mechanism->paper, mechanism->equations, mechanism->scaling}) {
      CHECK_FALSE(text.empty());
    }
    CHECK((mechanism->attend != nullptr));
    CHECK((mechanism->reference != nullptr));
    CHECK(&weft::mechanism(mechanism->name) == mechanism);
    const std::string inner = mechanism->wrapper ? "/" + mechanism->inner_tried.at(0) : "";
    for (const bool causal : {false, true}) {
      const AttentionSpec spec(mechanism->name + inner);
      if (spec.mechanism().cost == nullptr) continue;
      AttentionSizes rows = sizes;
      rows.N = rows.S = rows_of(spec.mechanism(), sizes.N);
      const AttentionCost cost = attention_cost(spec, rows, causal, DType::f32);
      CHECK(cost.forward_operations > 0);
      CHECK(cost.backward_operations > 0);
    }
    for (const OptionSheet& option : mechanism->options) {
      CHECK_FALSE(option.help.empty());
      CHECK_FALSE((option.choices.empty() && option.tried.empty()));
      CHECK_NOTHROW(
          AttentionSpec(mechanism->name + ":" + option.name + "=" + option.initial + inner));
    }
  }
}

TEST_CASE("every mechanism: the least that the fact sheets claim") {
  const auto named = [](const std::string& name, const std::vector<std::string>& names) {
    return std::ranges::count(names, name) == 1;
  };
  for (const Mechanism* m : mechanisms()) {
    if (m->wrapper) continue;  // has the facts of its inner mechanism
    CAPTURE(m->name);
    CHECK((m->masks.lengths || !m->multiple_of.empty()));  // a length would cut a block
    if (named(m->name, {"full", "agglomerative", "clustered", "i-clustered", "topk"})) {
      CHECK(m->cross);
    }
    if (named(m->name, {"full", "shared-full", "agglomerative", "topk"})) {
      CHECK(m->masks.causal);
      CHECK(m->strictly_causal);
      CHECK((m->decode != nullptr));
    }
    if (named(m->name, {"lsh", "i-clustered-causal"})) {
      CHECK(m->masks.causal);
      CHECK_FALSE(m->strictly_causal);
    }
  }
  for (const char* name : {"full", "shared-full", "agglomerative", "topk", "clustered",
                           "i-clustered", "i-clustered-causal", "lsh", "csp", "csp-shift",
                           "csp-sort", "conditional"}) {
    CHECK_NOTHROW(mechanism(name));
  }
}

}  // TEST_SUITE("attention")

}  // namespace
}  // namespace weft
