#include <unordered_map>

#include <sentencepiece_trainer.h>

#include "apps/data/paper_pieces.h"
#include "apps/data/sentence_pieces.h"
#include "doctest/doctest.h"
#include "runtime/random.h"
#include "tests/files.h"

using namespace weft;

namespace {

const std::string rhyme =
    "The old king waits near the bridge, and the old dog waits behind the king.\n"
    "Three small birds (two old, one young) sing: the king's dog sings 12 times.\n"
    "\"The river!\" said the old teacher. The caf\u00e9 opens at 9 or 10.\n";

std::string repeated(const std::string& text, std::size_t bytes) {
  std::string all;
  all.reserve(bytes + text.size());
  while (all.size() < bytes) all += text;
  return all;
}

using Options = std::unordered_map<std::string, std::string>;

// A model of SentencePiece, trained on the rhyme.
std::string trained_model(const TemporaryFolder& folder, Options more = {}) {
  more["input"] = folder.file("rhyme.txt", repeated(rhyme, 2000));
  more["model_prefix"] = folder.path("own");
  more["vocab_size"] = "50";
  more["minloglevel"] = "3";
  const auto status = sentencepiece::SentencePieceTrainer::Train(more);
  REQUIRE_MESSAGE(status.ok(), status.ToString());
  return folder.path("own.model");
}

std::shared_ptr<const PaperPieces> learnt() { return PaperPieces::learn(rhyme, "rhyme"); }

}  // namespace

TEST_SUITE("wordlm") {

TEST_CASE("pieces: ids by count, then by piece, the largest first") {
  // x </w> occurs 3 times, <seq> and </seq> once for each line; nothing is frequent enough to merge
  // but "a b": 3 times.
  const auto pieces = PaperPieces::learn("x ab\n\nX, Ab\n  \nx ab 7 7", "here");
  CHECK(pieces->merges() == std::vector<Merge>{{"a", "b</w>"}});
  const std::vector<std::string> wanted = {"x</w>", "ab</w>", "<seq>", "</seq>", "u",
                                           "n",     "m",      "></w>", "<",      ",</w>"};
  CHECK(pieces->pieces() == wanted);
  CHECK(pieces->size() == 14);
  CHECK(pieces->encode("AB x 99") == PieceIds{5, 4, 12, 9, 8, 10, 11});
  CHECK(pieces->encode("axb") == PieceIds{0, 0, 0});  // character pairs that never occurred
  CHECK(pieces->encode("").empty());
  const auto [unknown, begin, end, pad] = pieces->special();
  CHECK(PieceIds{unknown, begin, end, pad} == PieceIds{0, 1, 2, 3});
  CHECK(pieces->stream("x\r\n \r\nab\n", "here") == PieceIds{1, 4, 2, 1, 5, 2});
}

TEST_CASE("pieces: known text comes back, in lower case and with <num>") {
  const auto pieces = learnt();
  CHECK(pieces->decode(pieces->stream(rhyme, "rhyme")) ==
        "the old king waits near the bridge, and the old dog waits behind the king.\n"
        "three small birds (two old, one young) sing: the king's dog sings <num> times.\n"
        "\"the river!\" said the old teacher. the caf\u00e9 opens at <num> or <num>.\n");
  // Words that did not occur, of pieces that did.
  CHECK(pieces->decode(pieces->encode("the bird waits, the thing sings")) ==
        "the bird waits, the thing sings");
  CHECK(pieces->decode(pieces->encode("the \u6771 king")) == "the <UNK> king");
  CHECK(pieces->decode(PieceIds{}) == "");
  CHECK(pieces->decode(PieceIds{1, 3, 3}) == "");
  CHECK(pieces->decode(PieceIds{2, 1, 2}) == "\n\n");
  const std::string message = error_of([&] { pieces->decode(PieceIds{4, 9999}); });
  CHECK(contains(message, "there is no id 9999"));
  CHECK_THROWS_AS(pieces->decode(PieceIds{-1}), Error);
  // Any ids decode to text, wherever they split words.
  for (std::uint64_t i = 0; i < 200; ++i) {
    PieceIds ids;
    for (const std::uint32_t word : RandomKey{.seed = 5}.words(i).word) {
      ids.push_back(static_cast<std::int32_t>(word % static_cast<std::uint32_t>(pieces->size())));
    }
    CHECK_NOTHROW(pieces->decode(ids));
  }
}

TEST_CASE("pieces: saved and restored they are the same") {
  const auto pieces = learnt();
  const std::string saved = pieces->save();
  const auto restored = restore_pieces(saved, "here");
  CHECK(restored->save() == saved);
  CHECK(restored->name() == "paper");
  CHECK(restored->size() == pieces->size());
  for (const char* line : {"The king's dog, 12 caf\u00e9s", "unheard \u6771", ""}) {
    CHECK(restored->encode(line) == pieces->encode(line));
  }
}

TEST_CASE("pieces: damaged ones are refused, whatever is damaged") {
  const std::string head = "paper pieces 1\n";
  const struct {
    std::string saved;
    const char* part;
  } cases[] = {
      {"", "holds no word pieces"},
      {"paper pieces 2\n", "holds no word pieces"},
      {head, "line 2: wanted the number of merges, found \"the end\""},
      {head + "one merges\n", "wanted the number of merges"},
      {head + "1 pieces\na b\n0 pieces\n", "wanted the number of merges"},
      {head + "-1 merges\n0 pieces\n", "wanted the number of merges"},
      {head + "99999999999999999999 merges\n", "wanted the number of merges"},
      {head + "900000000000 merges\na b\n", "line 4: wanted two symbols"},
      {head + "1 merges\nab\n0 pieces\n", "line 3: wanted two symbols"},
      {head + "1 merges\na b c\n0 pieces\n", "wanted two symbols"},
      {head + "1 merges\n a\n0 pieces\n", "wanted two symbols"},
      {head + "1 merges\na \n0 pieces\n", "wanted two symbols"},
      {head + "1 merges\na b\n", "line 4: wanted the number of pieces"},
      {head + "0 merges\n2 pieces\nab\nab\n", "line 5: wanted a piece that is not above"},
      {head + "0 merges\n1 pieces\n\n ", "wanted a piece that is not above"},
      {head + "0 merges\n1 pieces\nab", "wanted"},
      {head + "0 merges\n1 pieces\nab\nmore\n", "line 5: wanted the end, found \"more\""},
      {head + "0 merges\n1 pieces\n\xff\xff\n", "not UTF-8"},
      {"sentencepiece ", "damaged word pieces"},
      {"sentencepiece x\n0", "damaged word pieces"},
      {"sentencepiece x\n0g", "not hexadecimal digits at position 16"},
      {"sentencepiece x\n0011", "not a SentencePiece model"},
      {"sentencepiece \xff\n00", "not UTF-8"},
      {"sentencepiece x\n", "not a SentencePiece model"},
  };
  for (const auto& [saved, part] : cases) {
    CAPTURE(saved);
    const std::string message = error_of([&, saved = saved] { restore_pieces(saved, "here"); });
    CHECK(contains(message, part));
    CHECK(contains(message, "here"));
  }
  const std::string whole = learnt()->save();
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    CHECK_THROWS_AS(restore_pieces(whole.substr(0, size), "here"), Error);
  }
}

TEST_CASE("pieces: a line of 100 MB works, a word of 100 MB does not") {
  const auto pieces = learnt();
  const std::size_t known = pieces->encode("the old king ").size();
  const std::string line = repeated("the old king ", 100'000'000);
  CHECK(pieces->encode(line).size() == line.size() / 13 * known);
  const std::string word(100'000'000, 'a');
  CHECK(contains(error_of([&] { pieces->encode(word); }),
                 "a word of 100000000 bytes; word pieces accept"));
  const std::string message = error_of([&] { PaperPieces::learn("ab\n" + word, "file"); });
  CHECK(contains(message, "file: line 2: a word of 100000000 bytes"));
  CHECK(pieces->encode(word.substr(0, PaperPieces::longest_word)).size() > 0);
  CHECK(
      contains(error_of([&] { pieces->encode("a \xff"); }), "not UTF-8: byte 0xff at position 2"));
}

TEST_CASE("pieces: SentencePiece's models") {
  const TemporaryFolder folder;
  const auto pieces = load_sentence_pieces(trained_model(folder));
  CHECK(pieces->name() == "own.model");
  CHECK(pieces->size() == 51);  // its 50, and pad, which it lacks
  const auto [unknown, begin, end, pad] = pieces->special();
  CHECK(PieceIds{unknown, begin, end, pad} == PieceIds{0, 1, 2, 50});
  const std::string line = "The old king sings, and the dog (12) waits.";
  const PieceIds ids = pieces->encode(line);
  CHECK(ids.size() > 5);
  CHECK(pieces->decode(ids) == line);
  CHECK(pieces->decode(pieces->stream(line + "\r\n\n" + line, "here")) ==
        line + "\n" + line + "\n");
  CHECK(pieces->decode(PieceIds{1, 50, 50}) == "");
  CHECK(contains(error_of([&] { pieces->decode(PieceIds{51}); }), "there is no id 51"));
  CHECK(contains(error_of([&] { pieces->encode("\xc3("); }), "not UTF-8"));
  const std::string message = error_of([&] { pieces->encode(std::string(100'000'000, 'a')); });
  CHECK(contains(message, "a line of 100000000 bytes"));

  const auto restored = restore_pieces(pieces->save(), "here");
  CHECK(restored->name() == "own.model");
  CHECK(restored->size() == 51);
  CHECK(restored->encode(line) == ids);
  CHECK(restored->save() == pieces->save());
}

TEST_CASE("pieces: a model of SentencePiece may place its special pieces") {
  const TemporaryFolder folder;
  const auto own = load_sentence_pieces(
      trained_model(folder, {{"pad_id", "0"}, {"unk_id", "3"}, {"bos_id", "1"}, {"eos_id", "2"}}));
  const auto special = own->special();
  CHECK(own->size() == 50);
  CHECK(PieceIds{special.unknown, special.begin, special.end, special.pad} == PieceIds{3, 1, 2, 0});
  const auto few =
      load_sentence_pieces(trained_model(folder, {{"bos_id", "-1"}, {"eos_id", "-1"}}));
  CHECK(few->size() == 53);
  CHECK(few->special().begin == 50);
  CHECK(few->special().end == 51);
  CHECK(few->special().pad == 52);
}

TEST_CASE("pieces: what is not a SentencePiece model") {
  const TemporaryFolder folder;
  for (const std::string& bytes : {std::string(), std::string("hello, I am no model\n"),
                                   std::string(1000, '\0'), std::string(1000, '\xff')}) {
    const std::string file = folder.file("bad.model", bytes);
    const std::string message = error_of([&] { load_sentence_pieces(file); });
    CHECK(contains(message, file + ": not a SentencePiece model"));
  }
  const std::string whole = read_file(trained_model(folder));
  const std::string cut = folder.file("cut.model", whole.substr(0, whole.size() / 2));
  CHECK(contains(error_of([&] { load_sentence_pieces(cut); }), "not a SentencePiece model"));
  CHECK(contains(error_of([&] { load_sentence_pieces(folder.path("none")); }), "No such file"));
  CHECK(contains(error_of([&] { load_sentence_pieces(folder.path()); }), "got a folder"));
}

}  // TEST_SUITE("wordlm")
