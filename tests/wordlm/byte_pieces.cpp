// Word pieces over bytes: splitting, learning, encoding and saving text; nothing is ever lost.
#include "apps/data/byte_pieces.h"

#include <map>

#include "apps/data/unicode.h"
#include "doctest/doctest.h"
#include "runtime/random.h"
#include "tests/files.h"

using namespace weft;

namespace {

const std::string odd_rhyme =
    "The old king's dog won't wait near the bridge, and the old dog waits behind the king.\r\n"
    "  Three  small birds (two OLD, one young) sing: 12 or 1234 times!!\n\n\tThe caf\u00e9 \u4e09 "
    "opens at \u00bd 9.\n";

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for_each_byte_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

// Any bytes, of few kinds, so that they repeat.
std::string random_bytes(std::uint64_t seed, std::size_t size) {
  constexpr std::string_view some("ab  Z9\n\t'sx\xc3\xa9\xff\0\xf0", 16);
  std::string text;
  for (std::uint64_t i = 0; text.size() < size; ++i) {
    const std::uint32_t word = RandomKey{.seed = seed}.words(i).word[0];
    text += word % 8 == 0 ? static_cast<char>(word >> 8) : some[(word >> 8) % some.size()];
  }
  return text;
}

}  // namespace

TEST_SUITE("wordlm") {

TEST_CASE("byte pieces: text is cut as GPT-2's expression cuts it") {
  using Words = std::vector<std::string>;
  CHECK(words_of("Hello world") == Words{"Hello", " world"});
  CHECK(words_of("it's 'tis we'll I'd'x") ==
        Words{"it", "'s", " '", "tis", " we", "'ll", " I", "'d", "'", "x"});
  CHECK(words_of("x12 34y") == Words{"x", "12", " 34", "y"});
  CHECK(words_of("a  b   c") == Words{"a", " ", " b", "  ", " c"});
  CHECK(words_of("a\n\nb \n c") == Words{"a", "\n", "\n", "b", " \n", " c"});
  CHECK(words_of("a \t") == Words{"a", " \t"});
  CHECK(words_of(" ") == Words{" "});
  CHECK(words_of("\tx") == Words{"\t", "x"});
  CHECK(words_of("end. (so)!") == Words{"end", ".", " (", "so", ")!"});
  CHECK(words_of("gr\u00f6\u00dfer \u4e09\u5341 \u00bd\u0662") ==
        Words{"gr\u00f6\u00dfer", " \u4e09\u5341", " \u00bd\u0662"});
  CHECK(words_of("a\u00a0\u00a0b") == Words{"a", "\u00a0", "\u00a0", "b"});
  CHECK(words_of("a\xff\xfe" "b") == Words{"a", "\xff\xfe", "b"});
  CHECK(words_of(std::string(600, 'a')) ==
        Words{std::string(256, 'a'), std::string(256, 'a'), std::string(88, 'a')});
  CHECK(words_of("").empty());
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::string text = random_bytes(seed, 300);
    std::string joined;
    for (const std::string& word : words_of(text)) joined += word;
    CHECK(joined == text);
  }
}

TEST_CASE("byte pieces: merges and ids by hand") {
  // " a" occurs 3 times, "ab" twice; a pair must occur 3 times.
  const auto pieces = BytePieces::learn("x ab ab ac\n", "bpe");
  CHECK(pieces->merges() == std::vector<Merge>{{"\u0120", "a"}});
  CHECK(pieces->size() == 256 + 1 + 1);
  CHECK(pieces->encode("ab ab") == PieceIds{'a', 'b', 256, 'b'});
  CHECK(pieces->stream("ab\n", "here") == PieceIds{'a', 'b', '\n'});
  CHECK(pieces->decode(PieceIds{256, 0xff, 257, 'b'}) == " a\xff" "b");
  CHECK(pieces->opening() == PieceIds{'\n'});
  const auto special = pieces->special();
  CHECK(PieceIds{special.unknown, special.begin, special.end, special.pad} ==
        PieceIds{257, 257, 257, 257});
  CHECK(BytePieces::learn(odd_rhyme, "bpe:merges=5")->merges().size() == 5);
  CHECK(BytePieces::learn(odd_rhyme, "bpe:merges=0")->size() == 257);
  CHECK(BytePieces::learn("", "bpe")->size() == 257);
  CHECK(contains(error_of([&] { pieces->decode(PieceIds{258}); }), "there is no id 258"));
  CHECK_THROWS_AS(pieces->decode(PieceIds{-1}), Error);
}

TEST_CASE("byte pieces: any bytes come back as they were, letter case and spaces too") {
  const auto pieces = BytePieces::learn(odd_rhyme + odd_rhyme + odd_rhyme, "bpe");
  CHECK(pieces->size() > 300);
  CHECK(pieces->decode(pieces->encode(odd_rhyme)) == odd_rhyme);
  CHECK(pieces->encode(odd_rhyme).size() < odd_rhyme.size() / 2);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    CHECK(pieces->decode(pieces->encode(one)) == one);
  }
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::string text = random_bytes(seed, 500);
    CHECK(pieces->decode(pieces->encode(text)) == text);
    const auto own = BytePieces::learn(text, "bpe");
    CHECK(own->decode(own->stream(text, "here")) == text);
  }
  const std::string line(10'000'000, 'a');
  CHECK(pieces->decode(pieces->encode(line)) == line);
}

TEST_CASE("byte pieces: saved and restored they are the same") {
  const auto pieces =
      BytePieces::learn(odd_rhyme + odd_rhyme + odd_rhyme + random_bytes(3, 5000), "bpe");
  const std::string saved = pieces->save();
  CHECK(is_utf8(saved));
  const auto restored = restore_pieces(saved, "here");
  CHECK(restored->save() == saved);
  CHECK(restored->name() == "bpe");
  CHECK(restored->size() == pieces->size());
  CHECK(restored->encode(odd_rhyme) == pieces->encode(odd_rhyme));
  CHECK(restore_pieces(BytePieces::learn(odd_rhyme, "bpe:merges=7")->save(), "here")->name() ==
        "bpe:merges=7");
}

TEST_CASE("byte pieces: damaged ones are refused, whatever is damaged") {
  const std::string head = "byte pieces 1\nbpe\n";
  const std::pair<std::string, const char*> cases[] = {
      {"byte pieces 2\n", "holds no word pieces"},
      {"byte pieces 1\n", "line 2: wanted bpe"},
      {"byte pieces 1\npaper\n0 merges\n", "--pieces: wanted bpe"},
      {head, "line 3: wanted the number of merges"},
      {head + "2 merges\na b\n", "line 5: wanted two symbols"},
      {head + "1 merges\nab\n", "wanted two symbols"},
      {head + "1 merges\na \u4e09\n", "has a character that represents no byte"},
      {head + "0 merges\nmore\n", "wanted the end"},
      {head + "1 merges\na \xff\n", "not UTF-8"}};
  for (const auto& [saved, part] : cases) {
    CAPTURE(saved);
    const std::string message = error_of([&, saved = saved] { restore_pieces(saved, "here"); });
    CHECK(contains(message, part));
    CHECK(message.starts_with("here: "));
  }
  const std::string whole = BytePieces::learn(odd_rhyme + odd_rhyme + odd_rhyme, "bpe")->save();
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    CHECK_THROWS_AS(restore_pieces(whole.substr(0, size), "here"), Error);
  }
  for (const char* bad : {"bpe:", "bpe:merges=", "bpe:merges=x", "bpe:merges=1e3", "bpe:merges=-1",
                          "bpe:merges=1000001", "bpe2", "bpe:merge=3"}) {
    CAPTURE(bad);
    CHECK(contains(error_of([&] { BytePieces::merges_of(bad); }), "--pieces: wanted bpe"));
  }
}

}  // TEST_SUITE("wordlm")
