// The real WikiText-2. WEFT_DATA names the folder that contains wikitext-2; without it nothing
// runs.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "apps/data/paper_pieces.h"
#include "apps/data/word_corpus.h"
#include "doctest/doctest.h"
#include "tests/files.h"

using namespace weft;

namespace {

void check_part(const PieceIds& ids, const WordCounts& counts, const WordCounts& wanted,
                i64 chunks) {
  CHECK(counts.lines == wanted.lines);
  CHECK(counts.words == wanted.words);
  CHECK(counts.tokens == wanted.tokens);
  CHECK(static_cast<i64>(ids.size()) == wanted.tokens);
  CHECK(WordChunks(ids, 128, 3).count() == chunks);
}

}  // namespace

TEST_SUITE("wordlm") {

TEST_CASE("WikiText-2: the sizes of Spellings 2019") {
  const char* const data = std::getenv("WEFT_DATA");
  const std::filesystem::path source = std::filesystem::path(data ? data : "") / "wikitext-2";
  if (data == nullptr || !std::filesystem::exists(source)) {
    std::printf("skipped: WikiText-2: set WEFT_DATA to the folder that holds wikitext-2\n");
    return;
  }
  const TemporaryFolder folder;  // the kept pieces are not written beside the data
  for (const char* part : {"train", "valid", "test"}) {
    const std::string name = std::string("wiki.") + part + ".tokens";
    std::filesystem::copy_file(source / name, folder.path(name));
  }
  using Seconds = std::chrono::duration<double>;
  const auto start = std::chrono::steady_clock::now();
  const WordCorpus corpus = load_words(folder.path(), "paper");
  const auto learnt = std::chrono::steady_clock::now();
  const WordCorpus again = load_words(folder.path(), "paper");
  const auto kept = std::chrono::steady_clock::now();
  std::printf("WikiText-2: learnt and encoded in %.2f s, encoded with kept pieces in %.2f s\n",
              Seconds(learnt - start).count(), Seconds(kept - learnt).count());

  CHECK(corpus.warnings.empty());
  CHECK(corpus.pieces->size() == 9914);
  check_part(corpus.train, corpus.train_counts, {23'767, 2'088'628, 2'382'463}, 18'613);
  check_part(corpus.validation, corpus.validation_counts, {2'461, 217'646, 241'869}, 1'890);
  check_part(corpus.test, corpus.test_counts, {2'891, 245'569, 272'336}, 2'128);
  CHECK(corpus.test.size() % 128 == 80);

  CHECK(again.warnings.empty());
  CHECK(again.pieces->save() == corpus.pieces->save());
  CHECK(again.train == corpus.train);
  CHECK(again.test == corpus.test);
}

}  // TEST_SUITE("wordlm")
