#include "apps/common/text.h"

#include <numeric>
#include <set>

#include "doctest/doctest.h"
#include "tests/files.h"

using namespace weft;

namespace {

Text counted(std::size_t size) {
  Text text;
  text.source = "counted";
  text.vocabulary = Vocabulary::bytes;
  text.ids.resize(size);
  std::iota(text.ids.begin(), text.ids.end(), std::uint8_t{0});
  return text;
}

}  // namespace

TEST_SUITE("charlm") {

TEST_CASE("text: text8's ids, and back") {
  const std::string all = "abcdefghijklmnopqrstuvwxyz ";
  const std::vector<std::uint8_t> ids = encode(Vocabulary::text8, all, "here");
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(ids[i] == i + 1);
    CHECK(character_of(Vocabulary::text8, ids[i]) == all[i]);
  }
  CHECK(size_of(Vocabulary::text8) == 28);
  const std::string bytes = "\xff\x01Z";
  CHECK(character_of(Vocabulary::bytes, encode(Vocabulary::bytes, bytes, "here")[0]) == '\xff');
}

TEST_CASE("text: the vocabulary is what the file needs, or what is claimed") {
  const TemporaryFolder folder;
  const std::string plain = folder.file("plain", "some words");
  const std::string rich = folder.file("rich", "some W\xc3\xb6rds\n");
  CHECK(load_text(plain, "auto").vocabulary == Vocabulary::text8);
  CHECK(load_text(plain, "bytes").vocabulary == Vocabulary::bytes);
  CHECK(load_text(rich, "auto").vocabulary == Vocabulary::bytes);
  CHECK(load_text(rich, "auto").ids.size() == 12);
  const std::string message = error_of([&] { load_text(rich, "text8"); });
  CHECK(contains(message, rich + ": the character 'W' at position 5"));
  CHECK(contains(error_of([&] { load_text(folder.file("none", ""), "auto"); }), "empty"));
  CHECK(contains(error_of([&] { load_text(folder.path("missing"), "auto"); }), "No such file"));
  CHECK(contains(error_of([&] { load_text(folder.path(), "auto"); }), "got a folder"));
  CHECK(load_text("builtin", "auto").grammar != nullptr);
  CHECK(load_text(plain, "auto").grammar == nullptr);
}

TEST_CASE("text: the parts tile the text by position") {
  const Text text = counted(1000);
  const Parts parts = split_text(text, parse_split("60/30/10"), 10);
  CHECK(parts.train.size() == 600);
  CHECK(parts.validation.data() == text.ids.data() + 600);
  CHECK(parts.validation.size() == 300);
  CHECK(parts.test.size() == 100);
  CHECK(parts.named("test").data() == parts.test.data());
  CHECK(contains(error_of([&] { parts.named("tset"); }), "did you mean test?"));
  const std::string message =
      error_of([&] { split_text(text, parse_split("60/30/10"), 100); });
  CHECK(contains(message, "its test part has 100 characters, a window takes 101"));
}

TEST_CASE("text: a split is three positive shares of 100") {
  CHECK(parse_split("90/5/5") == std::array<double, 3>{90, 5, 5});
  CHECK(parse_split("98.5/1/0.5")[0] == 98.5);
  for (const char* bad : {"", "60/30", "60/30/20", "60/40/0", "-10/100/10", "60/30/10/0",
                          "60-30-10", "a/b/c", "60/30/10 ", "nan/nan/nan", "inf/1/1"}) {
    CAPTURE(bad);
    CHECK(contains(error_of([&] { parse_split(bad); }), "--split: wanted"));
  }
}

TEST_CASE("text: random windows are a function of their key and reach every place") {
  const Text text = counted(40);
  const Ids ids(text.ids);
  std::set<std::int64_t> begins;
  for (std::uint32_t step = 0; step < 50; ++step) {
    const Batch batch = random_windows(ids, {7, step, 1}, 8, 30);
    CHECK(batch.inputs.shape() == Shape{8, 30});
    const auto inputs = batch.inputs.to_vector<std::int64_t>();
    const auto targets = batch.targets.to_vector<std::int64_t>();
    CHECK(inputs == random_windows(ids, {7, step, 1}, 8, 30).inputs.to_vector<std::int64_t>());
    CHECK(inputs != random_windows(ids, {8, step, 1}, 8, 30).inputs.to_vector<std::int64_t>());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      REQUIRE(targets[i] == inputs[i] + 1);
      if (i % 30 == 0) begins.insert(inputs[i]);
    }
  }
  CHECK(*begins.begin() == 0);
  CHECK(*begins.rbegin() == 9);
  CHECK(begins.size() == 10);
  // A window that is all there is.
  CHECK(random_windows(ids.first(31), {1, 1, 1}, 2, 30).inputs.to_vector<std::int64_t>()[30] == 0);
  CHECK_THROWS_AS(random_windows(ids.first(30), {1, 1, 1}, 2, 30), Error);
}

TEST_CASE("text: consecutive windows make every character but the first a target, once") {
  for (const std::size_t size : {11u, 41u, 47u, 121u, 130u, 200u}) {
    CAPTURE(size);
    const Text text = counted(size);
    const ConsecutiveWindows windows(Ids(text.ids), 3, 10);
    std::vector<std::int64_t> targets;
    for (std::int64_t i = 0; i < windows.count(); ++i) {
      const Batch batch = windows[i];
      CHECK(batch.inputs.size(0) <= 3);
      CHECK(batch.inputs.size(1) <= 10);
      const auto inputs = batch.inputs.to_vector<std::int64_t>();
      for (const std::int64_t target : batch.targets.to_vector<std::int64_t>()) {
        targets.push_back(target);
      }
      CHECK(inputs.front() + 1 == batch.targets.to_vector<std::int64_t>().front());
    }
    REQUIRE(targets.size() == size - 1);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      CHECK(targets[i] == static_cast<std::int64_t>(i + 1));
    }
  }
}

}  // TEST_SUITE
