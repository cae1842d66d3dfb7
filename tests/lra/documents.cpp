// Retrieval: pairs of texts (apps/lra/documents.h), their batches and their classifier.
#include "apps/lra/documents.h"

#include "doctest/doctest.h"
#include "tests/check.h"
#include "tests/lra/records.h"

namespace weft::lra {
namespace {

std::string text_at(const Sequences& part, i64 sequence) {
  const std::span<const std::uint8_t> bytes = part.at(sequence);
  return {bytes.begin(), bytes.end()};
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

}  // TEST_SUITE("lra")

}  // namespace
}  // namespace weft::lra
