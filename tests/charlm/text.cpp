#include "apps/data/text.h"

#include <numeric>
#include <set>

#include "apps/data/digest.h"
#include "apps/data/unicode.h"
#include "doctest/doctest.h"
#include "tests/files.h"

using namespace weft;

namespace {

Text counted(std::size_t size) {
  Text text;
  text.source = "counted";
  text.vocabulary = Vocabulary::bytes();
  text.ids.resize(size);
  std::iota(text.ids.begin(), text.ids.end(), CharacterId{0});
  return text;
}

}  // namespace

TEST_SUITE("charlm") {

TEST_CASE("text: text8's ids, and back") {
  const std::string all = "abcdefghijklmnopqrstuvwxyz ";
  const Vocabulary text8 = Vocabulary::text8();
  const std::vector<CharacterId> ids = text8.encode(all, "here");
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(ids[i] == i + 1);
    CHECK(text8.character(ids[i]) == all.substr(i, 1));
  }
  CHECK(text8.size() == 28);
  CHECK(text8.first() == 1);
  CHECK(text8.character(text8.opening()) == " ");
  const Vocabulary bytes = Vocabulary::bytes();
  CHECK(bytes.decode(bytes.encode("\xff\x01Z", "here")) == "\xff\x01Z");
}

TEST_CASE("text: a vocabulary of the characters that occur") {
  const std::string text = "Größe: 三 €\n\U0001f600e";
  const Vocabulary own = Vocabulary::of(text, "here");
  CHECK(own.name() == "characters");
  CHECK(own.characters() == "\n :Gerßö€三\U0001f600");
  CHECK(own.size() == 11);
  const std::vector<CharacterId> ids = own.encode(text, "here");
  CHECK(ids.size() == 13);
  CHECK(own.decode(ids) == text);
  CHECK(own.character(0) == "\n");
  CHECK(own.character(own.opening()) == " ");
  CHECK(Vocabulary::of("x\n", "here").opening() == 0);
  const Vocabulary again = Vocabulary::restore("characters", own.characters(), "there");
  CHECK(again.encode(text, "here") == ids);

  const auto refused = [&](const std::string& odd) {
    return error_of([&] { own.encode(odd, "--prompt"); });
  };
  CHECK(contains(refused("Grüße"),
                 "--prompt: the character 'ü' (U+00FC) at position 2 is none of "
                 "the 11 of the model's training text"));
  CHECK(contains(refused("\x07"), "the character U+0007 at position 0"));
  CHECK(contains(refused("\xff"), "--prompt: not UTF-8"));
  CHECK(contains(error_of([] { Vocabulary::of("\xff", "here"); }), "here: not UTF-8"));
  for (const char* damaged : {"", "ba", "aa", "\xff"}) {
    CAPTURE(damaged);
    const auto restore = [&] { Vocabulary::restore("characters", damaged, "there"); };
    CHECK(contains(error_of(restore), "there"));
  }
  CHECK(contains(error_of([] { Vocabulary::restore("byte", "", "there"); }), "did you mean bytes"));
  std::string many;
  for (char32_t c = 0x10000; c < 0x20001; ++c) many += utf8(c);
  CHECK(contains(error_of([&] { Vocabulary::of(many, "here"); }), "65537 different characters"));
  many.resize(many.size() - 4);
  CHECK(Vocabulary::of(many, "here").size() == 65536);
}

TEST_CASE("text: the vocabulary is what the file needs, or what is claimed") {
  const TemporaryFolder folder;
  const std::string plain = folder.file("plain", "some words");
  const std::string rich = folder.file("rich", "some W\xc3\xb6rds\n");
  const std::string odd = folder.file("odd", "some \xf6\n");
  const auto found = [](const std::string& file, const char* name) {
    return load_text(file, name).vocabulary.name();
  };
  CHECK(found(plain, "auto") == "text8");
  CHECK(found(plain, "bytes") == "bytes");
  CHECK(found(plain, "characters") == "characters");
  CHECK(found(rich, "auto") == "characters");
  CHECK(found(odd, "auto") == "bytes");
  CHECK(load_text(rich, "auto").ids.size() == 11);
  CHECK(load_text(rich, "bytes").ids.size() == 12);
  CHECK(load_text(rich, load_text(rich, "auto").vocabulary).ids == load_text(rich, "auto").ids);
  const std::string message = error_of([&] { load_text(rich, "text8"); });
  CHECK(contains(message, rich + ": the character 'W' at position 5"));
  CHECK(contains(error_of([&] { load_text(rich, Vocabulary::of("some", "")); }),
                 rich + ": the character U+0020 at position 4"));
  CHECK(contains(error_of([&] { load_text(folder.file("none", ""), "auto"); }), "empty"));
  CHECK(contains(error_of([&] { load_text(folder.path("missing"), "auto"); }), "No such file"));
  CHECK(contains(error_of([&] { load_text(folder.path(), "auto"); }), "got a folder"));
  CHECK(load_text("builtin", "auto").grammar != nullptr);
  CHECK(load_text(plain, "auto").grammar == nullptr);
}

TEST_CASE("text: one's own is shared 90/5/5, text8 as the paper shares it") {
  CHECK(resolved_split("auto", counted(1000)) == "90/5/5");
  CHECK(resolved_split("50/25/25", counted(1000)) == "50/25/25");
  CHECK(resolved_split("auto", load_text("builtin", "auto")) == "60/30/10");
  Text text8;
  text8.ids.resize(100'000'000, 1);
  CHECK(resolved_split("auto", text8) == "60/30/10");
  text8.ids.pop_back();
  CHECK(resolved_split("auto", text8) == "90/5/5");
  text8.source = "data/text8";  // a part of it, for example
  CHECK(resolved_split("auto", text8) == "60/30/10");
  text8.vocabulary = Vocabulary::bytes();
  CHECK(resolved_split("auto", text8) == "90/5/5");
}

TEST_CASE("text: the digest of ids is that of the bytes that they were once") {
  std::vector<CharacterId> ids;
  std::vector<std::uint8_t> bytes;
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i * i >> 5));
    ids.push_back(bytes.back());
  }
  for (const std::size_t size : {0u, 1u, 1000u, 65'536u, 65'537u, 200'000u}) {
    CHECK(digest_of_low_bytes(std::span(ids).first(size)) ==
          digest(std::as_bytes(std::span(bytes).first(size))));
  }
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
  std::set<i64> begins;
  for (std::uint32_t step = 0; step < 50; ++step) {
    const Batch batch = random_windows(ids, {7, step, 1}, 8, 30);
    CHECK(batch.inputs.shape() == Shape{8, 30});
    const auto inputs = batch.inputs.to_vector<i64>();
    const auto targets = batch.targets.to_vector<i64>();
    CHECK(inputs == random_windows(ids, {7, step, 1}, 8, 30).inputs.to_vector<i64>());
    CHECK(inputs != random_windows(ids, {8, step, 1}, 8, 30).inputs.to_vector<i64>());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      REQUIRE(targets[i] == inputs[i] + 1);
      if (i % 30 == 0) begins.insert(inputs[i]);
    }
  }
  CHECK(*begins.begin() == 0);
  CHECK(*begins.rbegin() == 9);
  CHECK(begins.size() == 10);
  // A window as long as the text.
  CHECK(random_windows(ids.first(31), {1, 1, 1}, 2, 30).inputs.to_vector<i64>()[30] == 0);
  CHECK_THROWS_AS(random_windows(ids.first(30), {1, 1, 1}, 2, 30), Error);
}

TEST_CASE("text: consecutive windows make every character but the first a target, once") {
  for (const std::size_t size : {11u, 41u, 47u, 121u, 130u, 200u}) {
    CAPTURE(size);
    const Text text = counted(size);
    const ConsecutiveWindows windows(Ids(text.ids), 3, 10);
    std::vector<i64> targets;
    for (i64 i = 0; i < windows.count(); ++i) {
      const Batch batch = windows[i];
      CHECK(batch.inputs.size(0) <= 3);
      CHECK(batch.inputs.size(1) <= 10);
      const auto inputs = batch.inputs.to_vector<i64>();
      for (const i64 target : batch.targets.to_vector<i64>()) {
        targets.push_back(target);
      }
      CHECK(inputs.front() + 1 == batch.targets.to_vector<i64>().front());
    }
    REQUIRE(targets.size() == size - 1);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      CHECK(targets[i] == static_cast<i64>(i + 1));
    }
  }
}

}  // TEST_SUITE
