// Retrieval: pairs of texts (apps/lra/documents.h), their batches and their classifier.
#include "apps/lra/documents.h"

#include "doctest/doctest.h"
#include "nn/sequence_classifier.h"
#include "tests/check.h"
#include "tests/lra/gradients.h"
#include "tests/lra/records.h"

namespace weft::lra {
namespace {

std::string text_at(const Sequences& part, i64 sequence) {
  const std::span<const std::uint8_t> bytes = part.at(sequence);
  return {bytes.begin(), bytes.end()};
}

SequenceClassifierConfig config_of(i64 together, i64 classes) {
  return {.symbols = 12,
          .classes = classes,
          .length = 9,
          .together = together,
          .width = 4,
          .layers = 1,
          .heads = 2,
          .hidden = 6,
          .attention_dropout = 0,
          .dropout = 0};
}

Tensor some_symbols() {
  const Tensor symbols = Tensor::empty({4, 9}, DType::i64);
  for (i64 i = 0; i < 36; ++i) symbols.data<i64>()[i] = (5 * i + i / 7) % 12;
  return symbols;
}

TEST_SUITE("lra") {

TEST_CASE("documents: lines are label, names and texts, whose start is read") {
  const TemporaryFolder folder;
  write_pairs(folder, 3);
  folder.file("new_aan_pairs.test.tsv",
              "1.0\ta\tb\t" + std::string(5000, 'x') + "\tshort\r\n0\tc\td\t\t\"quoted\" \xFF\n");
  const SequenceTask task = read_documents(folder.path());
  CHECK(task.train.count() == 3);
  CHECK(task.train.together == 2);
  CHECK(task.train.ends.size() == 6);
  CHECK(text_at(task.train, 2) == "first 1");
  CHECK(text_at(task.train, 3) == "second text 1");
  CHECK(task.train.labels == std::vector<std::uint8_t>{0, 1, 0});
  CHECK(text_at(task.test, 0) == std::string(4000, 'x'));
  CHECK(text_at(task.test, 1) == "short");
  CHECK(text_at(task.test, 2).empty());
  CHECK(text_at(task.test, 3) == "\"quoted\" \xFF");
  CHECK(task.test.labels == std::vector<std::uint8_t>{1, 0});
  CHECK(task.train.mean_length() == doctest::Approx(10));  // of 7 and 13
  const SequenceBatch batch = batch_of(task.test, std::vector<i64>{1, 0}, 4000);
  CHECK(batch.symbols.shape() == Shape{4, 4000});
  CHECK(batch.labels.shape() == Shape{2});
  CHECK(batch.labels.data<i64>()[0] == 0);
  CHECK(batch.lengths.data<i64>()[0] == 0);
  CHECK(batch.lengths.data<i64>()[1] == 10);
  CHECK(batch.symbols.data<i64>()[4000 + 9] == 255);
  CHECK(batch.lengths.data<i64>()[2] == 4000);
  CHECK(batch.lengths.data<i64>()[3] == 5);
  CHECK(batch.symbols.data<i64>()[3 * 4000 + 5] == 0);
}

TEST_CASE("documents: what is wrong is told with file and line") {
  const TemporaryFolder folder;
  CHECK_ERROR(read_documents(folder.path()),
              "new_aan_pairs.train.tsv: cannot be read; wanted Retrieval");
  write_pairs(folder, 1);
  const auto refused = [&](const std::string& text, const char* part) {
    folder.file("new_aan_pairs.eval.tsv", text);
    CHECK_ERROR(read_documents(folder.path()), part);
  };
  refused("0\ta\tb\tx\ty\n1\ta\tb\tx\n", "eval.tsv: line 2: has 4 columns; wanted label");
  refused("0\ta\tb\tx\ty\tz\n", "line 1: has 6 columns");
  refused("\n", "line 1: has 1 columns");
  refused("2\ta\tb\tx\ty\n", "line 1: its label is '2'; wanted 0, 0.0, 1 or 1.0");
  refused("", "eval.tsv: has no pairs");
}

TEST_CASE("sequence classifier: a pair is classified by both means, product and difference") {
  SequenceClassifier pairs(config_of(2, 3), 5, DType::f64);
  SequenceClassifier single(config_of(1, 4), 5, DType::f64);  // of a seed: the same layers
  for (const NamedParameter& p : parameters(single)) {        // its logits are the means
    if (p.name == "head.bias") p.variable.value().fill(0);
    if (p.name != "head.weight") continue;
    p.variable.value().fill(0);
    for (i64 i = 0; i < 4; ++i) p.variable.value().data<double>()[5 * i] = 1;
  }
  const Tensor symbols = some_symbols(), lengths = Tensor::from(std::vector<i64>{9, 5, 1, 7}, {4});
  Context context = Context::evaluation();
  const Tensor means = single(context, symbols, lengths).value();
  const Tensor logits = pairs(context, symbols, lengths).value();
  REQUIRE(logits.shape() == Shape{2, 3});
  const double *weight = nullptr, *bias = nullptr;
  const auto named = parameters(pairs);
  for (const NamedParameter& p : named) {
    if (p.name == "head.weight") weight = p.variable.value().data<double>();
    if (p.name == "head.bias") bias = p.variable.value().data<double>();
  }
  for (i64 b = 0; b < 2; ++b) {
    for (i64 c = 0; c < 3; ++c) {
      double expected = bias[c];
      for (i64 i = 0; i < 4; ++i) {
        const double one = means.data<double>()[8 * b + i],
                     two = means.data<double>()[8 * b + 4 + i];
        const double inputs[] = {one, two, one * two, one - two};
        for (i64 k = 0; k < 4; ++k) expected += inputs[k] * weight[(4 * k + i) * 3 + c];
      }
      CHECK(logits.data<double>()[3 * b + c] == doctest::Approx(expected).epsilon(1e-12));
    }
  }
  CHECK_ERROR(pairs(context, symbols.slice(0, 0, 3), lengths.slice(0, 0, 3)),
              "wanted 2 sequences for each example, got 3 in all");
  CHECK_ERROR(SequenceClassifier(config_of(3, 2), 1), "an example is 1 or 2 sequences, got 3");
}

TEST_CASE("sequence classifier: gradients of pairs against central differences") {
  SequenceClassifier model(config_of(2, 2), 3, DType::f64);
  const Tensor symbols = some_symbols(), lengths = Tensor::from(std::vector<i64>{9, 5, 1, 7}, {4});
  check_gradients_of(model, symbols, lengths);
}

}  // TEST_SUITE("lra")

}  // namespace
}  // namespace weft::lra
