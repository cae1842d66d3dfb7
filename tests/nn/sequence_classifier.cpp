#include "nn/sequence_classifier.h"

#include "tests/nn/checks.h"
#include "tests/nn/reference.h"

using namespace weft;

namespace {

SequenceClassifierConfig tiny_classifier(const std::string& attention, i64 together = 1) {
  return {.symbols = 16,
          .classes = 3,
          .length = 40,
          .together = together,
          .width = 8,
          .layers = 2,
          .heads = 2,
          .hidden = 12,
          .attention = attention,
          .attention_dropout = 0.2,
          .dropout = 0.3};
}

// The definition, by the positions that exist alone.
struct ClassifierDefinition : reference::Weights {
  using Rows = reference::Rows;
  SequenceClassifierConfig config;

  explicit ClassifierDefinition(SequenceClassifier& model)
      : Weights(model), config(model.config()) {}

  std::vector<double> mean_of(std::span<const i64> symbols) const {
    Rows h;
    for (const i64 symbol : symbols) {
      h.push_back(weights.at("symbols.table")[static_cast<std::size_t>(symbol)]);
    }
    h = reference::sum(h, weights.at("positions"));
    for (i64 i = 0; i < config.layers; ++i) {
      const std::string block = fmt::format("transformer.blocks.{}.", i);
      h = reference::sum(h,
                         full(norm(h, block + "norm1"), block + "attention", config.heads, false));
      h = reference::sum(h, feed_forward(norm(h, block + "norm2"), block + "feed_forward"));
    }
    return reference::mean(norm(h, "norm"));
  }

  // Of one example.
  std::vector<double> operator()(std::span<const std::vector<i64>> sequences) const {
    std::vector<double> features = mean_of(sequences[0]);
    if (config.together == 2) {
      const std::vector<double> one = features, two = mean_of(sequences[1]);
      features.insert(features.end(), two.begin(), two.end());
      for (std::size_t i = 0; i < one.size(); ++i) features.push_back(one[i] * two[i]);
      for (std::size_t i = 0; i < one.size(); ++i) features.push_back(one[i] - two[i]);
    }
    return linear({features}, "head")[0];
  }
};

}  // namespace

TEST_SUITE("nn") {

TEST_CASE("sequence classifier: logits of sequences and of pairs are those of the definition") {
  for (const i64 together : {1, 2}) {
    CAPTURE(together);
    SequenceClassifier model(tiny_classifier("full", together), 3, f64);
    randomise(model, 5);
    const std::vector<i64> lengths = {9, 5, 1, 7};
    const Tensor symbols = random_ids({4, 9}, 16, 4);
    Context context = Context::evaluation();
    const Tensor logits =
        model(context, symbols, lengths_of(lengths).to(tested_device())).value().to(Device());
    REQUIRE(logits.shape() == Shape{4 / together, 3});
    const ClassifierDefinition definition(model);
    const std::vector<i64> all = symbols.to_vector<i64>();
    std::vector<std::vector<i64>> sequences;
    for (std::size_t b = 0; b < 4; ++b) {
      const auto begin = all.begin() + std::ptrdiff_t(9 * b);
      sequences.emplace_back(begin, begin + lengths[b]);
    }
    for (i64 b = 0; b < 4 / together; ++b) {
      const std::vector<double> wanted = definition(
          std::span(sequences).subspan(std::size_t(b * together), std::size_t(together)));
      CHECK(relative_error(logits.slice(0, b, b + 1), Tensor::from(wanted, {1, 3})) <
            tolerance::backward_f64);
    }
  }
}

TEST_CASE("sequence classifier: what fills a batch up changes nothing") {
  for (const std::string attention : {"full", "linformer:rank=6", "linear", "csp:groups=1", "lsh",
                                      "local:context=6", "cosformer", "performer:features=9"}) {
    CAPTURE(attention);
    SequenceClassifier model(tiny_classifier(attention), 3, f64);
    randomise(model, 5);
    const Tensor both = random_ids({2, 40}, 16, 4),
                 lengths = lengths_of({40, 23}).to(tested_device());
    const auto logits_of = [&](const Tensor& symbols) {
      Context context = Context::evaluation();
      return model(context, symbols, lengths).value();
    };
    const Tensor logits = logits_of(both);
    CHECK(logits.shape() == Shape{2, 3});
    const Tensor other = both.clone();
    other.slice(0, 1, 2).slice(1, 23, 40).fill(0);
    CHECK(!same_bits(other, both));
    CHECK(same_bits(logits_of(other), logits));
  }
}

TEST_CASE("sequence classifier: gradients by every parameter, with dropout") {
  for (const i64 together : {1, 2}) {
    CAPTURE(together);
    SequenceClassifier model(tiny_classifier("full", together), 3, f64);
    randomise(model, 5);
    const Tensor symbols = random_ids({4, 11}, 16, 4),
                 lengths = lengths_of({11, 6, 1, 8}).to(tested_device());
    check_gradients_of(
        model,
        [&](std::span<const Variable>) {
          Context context(true, 5, 1);
          return std::vector<Variable>{model(context, symbols, lengths)};
        },
        {}, 20);
  }
}

TEST_CASE("sequence classifier: bad sizes are refused") {
  SequenceClassifierConfig config = tiny_classifier("full");
  config.layers = 0;
  CHECK_ERROR(SequenceClassifier(config, 1), "layers must be at least 1, got 0");
  config = tiny_classifier("full");
  config.attention_dropout = 0.999999;
  CHECK_ERROR(SequenceClassifier(config, 1),
              "sequence classifier: the dropout rate must be in [0, 1)");
  CHECK_ERROR(SequenceClassifier(tiny_classifier("full", 3), 1),
              "an example is 1 or 2 sequences, got 3");
  SequenceClassifier model(tiny_classifier("full", 2), 1);
  put_on_tested_device(model);
  Context context = Context::evaluation();
  CHECK_ERROR(model(context, random_ids({2, 41}, 16, 4), lengths_of({41, 41})), "at most 40");
  CHECK_ERROR(model(context, random_ids({3, 4}, 16, 4), lengths_of({4, 4, 4})),
              "wanted 2 sequences for each example, got 3 in all");
}

}  // TEST_SUITE("nn")
