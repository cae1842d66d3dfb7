#include "apps/data/word_corpus.h"

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include <sys/stat.h>

#include "apps/data/paper_pieces.h"
#include "doctest/doctest.h"
#include "tests/files.h"

using namespace weft;

namespace {

const std::string sentence = "The cat sat on the mat , and the cat 's hat sat on the cat .\n";

// A folder of text, as WikiText names its files.
void fill(const TemporaryFolder& folder, const std::string& train = sentence + sentence) {
  folder.file("wiki.train.tokens", train);
  folder.file("wiki.valid.tokens", " = Mats = \n\n the mat @-@ cat \n");
  folder.file("wiki.test.tokens", "the hat\n");
}

std::vector<i64> values(const Tensor& tensor) { return tensor.to_vector<i64>(); }

}  // namespace

TEST_SUITE("wordlm") {

TEST_CASE("corpus: the parts of a folder, and their words") {
  const TemporaryFolder folder;
  fill(folder);
  const WordCorpus corpus = load_words(folder.path(), "paper");
  CHECK(corpus.warnings.empty());
  CHECK(corpus.train_counts.lines == 2);
  CHECK(corpus.train_counts.words == 2 * (17 + 1));
  CHECK(corpus.validation_counts.lines == 2);
  CHECK(corpus.validation_counts.words == 3 + 4 + 3);  // @-@ is a word to the field; three ends
  CHECK(corpus.test_counts.words == 3);
  CHECK(corpus.validation_counts.characters == 30);
  CHECK(corpus.test_counts.characters == 8);
  CHECK(corpus.train_counts.tokens == static_cast<i64>(corpus.train.size()));
  const std::string line = "the cat sat on the mat, and the cat's hat sat on the cat.\n";
  CHECK(corpus.pieces->decode(corpus.train) == line + line);
  CHECK(corpus.pieces->decode(corpus.test) == "the hat\n");

  // The same text under plain names, with CRLF, and without the last end of line.
  const TemporaryFolder plain;
  const std::string crlf = sentence.substr(0, sentence.size() - 1) + "\r\n";
  plain.file("train.txt", crlf + crlf.substr(0, crlf.size() - 2));
  plain.file("valid.txt", " = Mats = \r\n\r\n the mat @-@ cat");
  plain.file("test.txt", "the hat\r\n");
  const WordCorpus same = load_words(plain.path(), "paper");
  CHECK(same.train == corpus.train);
  CHECK(same.validation == corpus.validation);
  CHECK(same.test == corpus.test);
  CHECK(same.train_counts.words == corpus.train_counts.words);
  CHECK(same.validation_counts.words == corpus.validation_counts.words);
  CHECK(same.pieces->save() == corpus.pieces->save());

  // With existing pieces.
  const WordCorpus given = load_words(plain.path(), corpus.pieces);
  CHECK(given.pieces == corpus.pieces);
  CHECK(given.test == corpus.test);
}

TEST_CASE("corpus: a file is shared by lines, and the built-in text needs none") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += sentence;
  const WordCorpus corpus = load_words(folder.file("mine.txt", text), "paper");
  CHECK(corpus.train_counts.lines + corpus.validation_counts.lines + corpus.test_counts.lines ==
        100);
  CHECK(corpus.train_counts.lines == 90);  // the line that ends at or after 90 percent
  CHECK(corpus.validation_counts.lines == 5);
  CHECK(std::filesystem::exists(folder.path("mine.txt.pieces")));
  text.clear();
  for (int i = 0; i < 20; ++i) text += "cat\n";
  const WordCorpus small = load_words(folder.file("small.txt", text), "paper");
  CHECK(small.train_counts.lines == 18);
  CHECK(small.validation_counts.lines == 1);
  CHECK(small.test_counts.lines == 1);
  CHECK(contains(error_of([&] { load_words(folder.file("one", "one line\n"), "paper"); }),
                 "no text in this part"));
  CHECK(contains(error_of([&] { load_words(folder.file("none", ""), "paper"); }), "is empty"));

  const WordCorpus builtin = load_words("builtin", "paper");
  CHECK(builtin.train_counts.words > 50'000);
  CHECK(builtin.test_counts.words > 3'000);
  CHECK(builtin.pieces->size() > 50);
  CHECK(builtin.train == load_words("builtin", "paper").train);
  const std::string known = builtin.pieces->decode(std::span(builtin.validation).first(40));
  CHECK(!contains(known, "<UNK>"));
}

TEST_CASE("corpus: pieces over bytes are learnt from the training part of any text") {
  const TemporaryFolder folder;
  fill(folder, " = Heading = \n\nThe cat , in 1999 .\r\nThe c\xe9t\n");  // Latin-1
  const WordCorpus corpus = load_words(folder.path(), "bpe");
  CHECK(corpus.pieces->name() == "bpe");
  CHECK(corpus.pieces->decode(corpus.train) == read_file(folder.path("wiki.train.tokens")));
  CHECK(corpus.pieces->decode(corpus.validation) == " = Mats = \n\n the mat @-@ cat \n");
  CHECK(corpus.train_counts.words == 3 + 6 + 2 + 4);
  CHECK(corpus.train_counts.lines == 3);
  CHECK_FALSE(std::filesystem::exists(folder.path("wiki.train.tokens.pieces")));
  CHECK(load_words(folder.path(), "bpe").train == corpus.train);
  CHECK(load_words(folder.path(), corpus.pieces).test == corpus.test);
  CHECK(load_words(folder.path(), "bpe:merges=0").train.size() ==
        read_file(folder.path("wiki.train.tokens")).size());
  folder.file("wiki.valid.tokens", "\n \n");
  CHECK(contains(error_of([&] { load_words(folder.path(), "bpe"); }), "no text in this part"));
  const WordCorpus builtin = load_words("builtin", "bpe");
  CHECK(builtin.train_counts.words > 50'000);
  CHECK(builtin.train.size() < 100'000);  // a word is a piece
}

TEST_CASE("corpus: bad text is refused with its file and place") {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& pieces = "paper") {
    return error_of([&] { load_words(folder.path(), pieces); });
  };
  CHECK(contains(message(), "neither wiki.train.tokens nor train.txt"));
  fill(folder);
  folder.file("wiki.valid.tokens", "fine\nnot \xff fine\n");
  CHECK(contains(message(),
                 folder.path("wiki.valid.tokens") + ": not UTF-8: byte 0xff at position 9"));
  folder.file("wiki.valid.tokens", " \n\r\n\t\n");
  CHECK(contains(message(), folder.path("wiki.valid.tokens") + ": there is no text in this part"));
  folder.file("wiki.valid.tokens", "");
  CHECK(contains(message(), "there is no text in this part"));
  folder.file("wiki.valid.tokens", "fine\n\n" + std::string(1'000'000, 'x'));
  CHECK(
      contains(message(), folder.path("wiki.valid.tokens") + ": line 3: a word of 1000000 bytes"));
  std::filesystem::remove(folder.path("wiki.valid.tokens"));
  CHECK(contains(message(), folder.path("wiki.valid.tokens") + ": cannot be opened"));
  fill(folder);
  const std::string file = folder.file("one.txt", std::string(2000, 'x') + "\nbad \xff here\n");
  CHECK(contains(error_of([&] { load_words(file, "paper"); }),
                 file + ": not UTF-8: byte 0xff at position 2005"));
  CHECK(contains(message("papr"), "there are no 'papr'"));
  CHECK(contains(message(folder.path("none.model")), "No such file"));
  CHECK(contains(error_of([&] { load_words(folder.path("none"), "paper"); }), "No such file"));
}

TEST_CASE("corpus: kept pieces are used while they fit, else learnt anew with a warning") {
  const TemporaryFolder folder;
  fill(folder);
  const std::string kept = folder.path("wiki.train.tokens.pieces");
  const std::string saved = load_words(folder.path(), "paper").pieces->save();
  const std::string bytes = read_file(kept);
  CHECK(contains(bytes, "weft kept pieces 1\nlearnt from "));
  CHECK(bytes.ends_with(saved));

  // Whether they are read shows in the result, here a user-defined vocabulary.
  const auto warned = [&](const char* part) {
    const WordCorpus corpus = load_words(folder.path(), "paper");
    CHECK(corpus.warnings.size() == 1);
    CHECK((!corpus.warnings.empty() && contains(corpus.warnings[0], kept)));
    CHECK((!corpus.warnings.empty() && contains(corpus.warnings[0], part)));
    CHECK(corpus.pieces->save() == saved);
    CHECK(read_file(kept) == bytes);
  };
  for (std::size_t size = 0; size < bytes.size(); size += 13) {
    folder.file("wiki.train.tokens.pieces", bytes.substr(0, size));
    warned("learning the word pieces anew");
  }
  for (std::size_t at = 0; at < bytes.size(); at += 11) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    folder.file("wiki.train.tokens.pieces", flipped);
    warned("learning the word pieces anew");
  }
  folder.file("wiki.train.tokens.pieces", bytes + "x");
  warned("is damaged");

  fill(folder, sentence + sentence + "More words\n");
  const WordCorpus other = load_words(folder.path(), "paper");
  REQUIRE(other.warnings.size() == 1);
  CHECK(contains(other.warnings[0], "was learnt from another text"));
  CHECK(other.pieces->save() != saved);
  CHECK(load_words(folder.path(), "paper").warnings.empty());
}

TEST_CASE("corpus: where pieces cannot be kept, there is a warning and no error") {
  const TemporaryFolder folder;
  fill(folder);
  // A folder at the path of the file stops also users who may write anywhere.
  std::filesystem::create_directory(folder.path("wiki.train.tokens.pieces.partial"));
  const WordCorpus corpus = load_words(folder.path(), "paper");
  REQUIRE(corpus.warnings.size() == 1);
  CHECK(contains(corpus.warnings[0], "the word pieces are not saved"));
  CHECK(!corpus.train.empty());
}

TEST_CASE("chunks: N ids and their successors, filled up with pad") {
  PieceIds ids(10);
  std::iota(ids.begin(), ids.end(), 100);
  const WordChunks chunks(ids, 4, 3);
  REQUIRE(chunks.count() == 3);
  const std::vector<i64> order = {2, 0};
  const Batch batch = chunks.batch(order);
  CHECK(batch.inputs.shape() == Shape{2, 4});
  CHECK(values(batch.inputs) == std::vector<i64>{108, 109, 3, 3, 100, 101, 102, 103});
  CHECK(values(batch.targets) == std::vector<i64>{109, 3, 3, 3, 101, 102, 103, 3});
  CHECK(WordChunks(std::span(ids).first(8), 4, 3).count() == 2);
  CHECK(WordChunks(std::span(ids).first(0), 4, 3).count() == 0);
  CHECK_THROWS_AS(chunks.batch(std::vector<i64>{3}), Error);
  CHECK_THROWS_AS(chunks.batch(std::vector<i64>{-1}), Error);
  CHECK_THROWS_AS(WordChunks(ids, 0, 3), Error);
}

}  // TEST_SUITE("wordlm")
