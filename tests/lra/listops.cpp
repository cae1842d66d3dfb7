// ListOps: its grammar, its counts, its files (apps/lra/listops.h).
#include "apps/lra/listops.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <sstream>

#include "apps/lra/evaluate.h"
#include "doctest/doctest.h"
#include "tests/check.h"
#include "tests/files.h"

namespace weft::lra {
namespace {

constexpr PartCounts some{.train = 400, .validation = 30, .test = 50};

std::string text_of(const SequenceTask& task, std::span<const std::uint8_t> words) {
  std::string text;
  for (const std::uint8_t word : words) text += (text.empty() ? "" : " ") + task.symbols[word - 1u];
  return text;
}

// By the definition, on the text.
int value_of_text(std::istringstream& in) {
  std::string word;
  in >> word;
  if (word.size() == 1) return word[0] - '0';
  std::vector<int> values;
  while (in >> std::ws, in.peek() != ']') values.push_back(value_of_text(in));
  in.get();
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  if (word == "[MIN") return values.front();
  if (word == "[MAX") return values.back();
  if (word == "[SM") return std::accumulate(values.begin(), values.end(), 0) % 10;
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
  return static_cast<int>(std::floor(median));
}

int deepest_of(const std::string& text) {
  int depth = 0, most = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    most = std::max(most, depth);
  }
  return most;
}

TEST_SUITE("lra") {

TEST_CASE("listops: trees are those of the grammar, and labels what they come to") {
  const SequenceTask task = drawn_listops(1, some);
  CHECK(task.train.count() == 400);
  CHECK(task.validation.count() == 30);
  CHECK(task.test.count() == 50);
  std::set<std::string> known;
  for (const Sequences* part : {&task.train, &task.validation, &task.test}) {
    for (i64 i = 0; i < part->count(); ++i) {
      const std::span<const std::uint8_t> words = part->at(i);
      CHECK(words.size() > 500);
      CHECK(words.size() < 2000);
      const std::string text = text_of(task, words);
      CHECK(known.insert(text).second);
      std::istringstream in(text);
      const int label = part->labels[static_cast<std::size_t>(i)];
      CHECK(value_of_text(in) == label);
      CHECK(value_of(words) == label);
      CHECK(deepest_of(text) <= 9);  // at depth 10 there are digits alone
    }
  }
  CHECK(drawn_listops(1, some).train.symbols == task.train.symbols);
  CHECK(drawn_listops(2, some).train.symbols != task.train.symbols);
}

TEST_CASE("listops: counts of arguments, operators and lengths are as published") {
  const SequenceTask task = drawn_listops(3, some);
  std::vector<double> operators(4), arguments(11);
  double lists = 0;
  for (i64 i = 0; i < task.train.count(); ++i) {
    std::vector<int> open;
    for (const std::uint8_t word : task.train.at(i)) {
      const std::string& text = task.symbols[word - 1u];
      if (text == "]") {
        ++arguments[static_cast<std::size_t>(open.back())], ++lists;
        open.pop_back();
        continue;
      }
      if (!open.empty()) ++open.back();
      if (text[0] == '[') ++operators[word - 1u], open.push_back(0);
    }
  }
  for (const double count : operators) CHECK(std::abs(count / lists - 0.25) < 0.01);
  CHECK(arguments[0] + arguments[1] == 0);
  for (std::size_t n = 2; n <= 10; ++n)
    CHECK(arguments[n] > lists / 15);  // a ninth, before some are kept
  const double mean = double(task.train.symbols.size()) / 400;
  CHECK(std::abs(mean - 1035) < 5 * 370 / std::sqrt(400.0));  // published mean; deviation about 370
}

TEST_CASE("listops: values of small trees") {
  const SequenceTask task = drawn_listops(1, {.train = 1, .validation = 1, .test = 1});
  const auto value = [&](const std::string& text) {
    std::vector<std::uint8_t> words;
    std::istringstream in(text);
    for (std::string word; in >> word;) {
      const auto found = std::find(task.symbols.begin(), task.symbols.end(), word);
      words.push_back(static_cast<std::uint8_t>(1 + (found - task.symbols.begin())));
    }
    return int{value_of(words)};
  };
  CHECK(value("[MAX 2 9 [MIN 4 7 ] 0 ]") == 9);
  CHECK(value("[MIN 2 9 [MIN 4 7 ] 1 ]") == 1);
  CHECK(value("[MED 1 2 5 9 ]") == 3);  // 3.5
  CHECK(value("[MED 7 1 5 ]") == 5);
  CHECK(value("[SM 9 8 [SM 5 5 ] 3 ]") == 0);
  CHECK(value("4") == 4);
  CHECK_ERROR(value("[MAX 1 2"), "not closed");
  CHECK_ERROR(value("[MAX ]"), "empty");
  CHECK_ERROR(value("1 2"), "ends at word 1 of 2");
  CHECK_ERROR(value("]"), "wanted an operator or a digit");
}

TEST_CASE("listops: the best class by the first word, and the most frequent one") {
  SequenceTask task = drawn_listops(1, {.train = 1, .validation = 1, .test = 1});
  task.train = {}, task.test = {};
  const auto add = [](Sequences& to, std::uint8_t word, std::uint8_t label) {
    to.add(std::vector<std::uint8_t>{word, 5, 5, 15}, label);
  };
  for (const int label : {0, 0, 3}) add(task.train, 1, static_cast<std::uint8_t>(label));
  for (const int label : {9, 9, 9}) add(task.train, 2, static_cast<std::uint8_t>(label));
  for (const int label : {0, 9, 0, 1}) add(task.test, 1, static_cast<std::uint8_t>(label));
  for (const int label : {9, 9, 0, 9}) add(task.test, 2, static_cast<std::uint8_t>(label));
  const std::vector<Figure> found = baselines(task, task.test);
  REQUIRE(found.size() == 2);
  CHECK(found[0].key == "majority");
  CHECK(found[0].value == doctest::Approx(50));  // 9, of which there are four
  CHECK(found[1].key == "first_word");
  CHECK(found[1].value == doctest::Approx(62.5));  // two of four and three of four
  task.first_tells = false;
  CHECK(baselines(task, task.test).size() == 1);
}

TEST_CASE("listops: files are read as they were written, and as they are released") {
  const TemporaryFolder folder;
  const SequenceTask task = drawn_listops(5, {.train = 20, .validation = 3, .test = 4});
  write_listops(task, folder.path());
  const SequenceTask read = read_listops(folder.path());
  CHECK(read.train.symbols == task.train.symbols);
  CHECK(read.train.labels == task.train.labels);
  CHECK(read.test.symbols == task.test.symbols);
  CHECK(read.validation.count() == 3);
  const std::string heading = "Source\tTarget\r\n";
  folder.file("basic_val.tsv", heading + "( ( ( [MAX 2 ) 9 ) ] )\t9\r\n");
  CHECK(text_of(read, read_listops(folder.path()).validation.at(0)) == "[MAX 2 9 ]");
  const auto refused = [&](const std::string& text, const char* part) {
    folder.file("basic_val.tsv", text);
    CHECK_ERROR(read_listops(folder.path()), part);
  };
  refused(heading + "[MAX 2 9 ]\t9\n[MAX 2 x ]\t9\n",
          "basic_val.tsv: line 3: 'x' is not a word of ListOps");
  refused(heading + "[MAX 2 9 ]\n", "basic_val.tsv: line 2: wanted words, a tab and a digit");
  refused(heading + "[MAX 2 9 ]\t19\n", "wanted words, a tab and a digit");
  refused(heading + "( )\t1\n", "has 0 words; wanted 1");
  refused("[MAX 2 9 ] 9\n", "line 1: wanted two headings");
  refused(heading, "has no trees");
  CHECK_ERROR(read_listops(folder.path("none")), "basic_train.tsv: cannot be read");
}

TEST_CASE("listops: batches are filled up, and an epoch has every sequence once") {
  const SequenceTask task = drawn_listops(6, {.train = 23, .validation = 1, .test = 1});
  SequenceBatches batches(task.train, task.longest, 5, 9);
  CHECK(batches.epoch_steps() == 4);
  std::multiset<i64> lengths;
  for (std::uint32_t step = 1; step <= 4; ++step) {
    const SequenceBatch batch = batches(step);
    CHECK(batch.symbols.shape() == Shape{5, 2000});
    for (i64 b = 0; b < 5; ++b) {
      const i64 length = batch.lengths.data<i64>()[b];
      lengths.insert(length);
      for (i64 n = 0; n < 2000; ++n) {
        CHECK((batch.symbols.data<i64>()[b * 2000 + n] == 0) == (n >= length));
      }
    }
  }
  std::multiset<i64> all;
  for (i64 i = 0; i < 23; ++i) all.insert(static_cast<i64>(task.train.at(i).size()));
  CHECK(std::includes(all.begin(), all.end(), lengths.begin(), lengths.end()));
  CHECK(lengths.size() == 20);
  CHECK_FALSE(same_bits(batches(1).labels, batches(5).labels));
  CHECK_THROWS_WITH_AS(SequenceBatches(task.train, task.longest, 24, 1),
                       doctest::Contains("--batch"), Error);
}

}  // TEST_SUITE("lra")

}  // namespace
}  // namespace weft::lra
