#include "apps/data/byte_pairs.h"

#include <algorithm>
#include <map>

#include "doctest/doctest.h"
#include "runtime/random.h"

using namespace weft;

namespace {

using Symbols = std::vector<std::string>;

// The characters of a word of characters of one or two bytes, the last with </w>.
Symbols characters_of(const std::string& word) {
  Symbols symbols;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool two = static_cast<unsigned char>(word[i]) >= 0xc0;
    symbols.push_back(word.substr(i, two ? 2 : 1));
    i += two ? 1 : 0;
  }
  symbols.back() += "</w>";
  return symbols;
}

Symbols merged(const Symbols& symbols, const Merge& merge) {
  Symbols result;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (i + 1 < symbols.size() && symbols[i] == merge.first && symbols[i + 1] == merge.second) {
      result.push_back(merge.first + merge.second);
      ++i;
    } else {
      result.push_back(symbols[i]);
    }
  }
  return result;
}

// The definition: all pairs are counted again before each merge.
std::vector<Merge> naive_merges(const std::vector<CountedWord>& words, std::size_t most,
                                i64 least) {
  std::vector<std::pair<Symbols, i64>> all;
  for (const CountedWord& word : words) all.emplace_back(characters_of(word.word), word.count);
  std::vector<Merge> merges;
  while (merges.size() < most) {
    std::map<Merge, i64> counts;
    for (const auto& [symbols, count] : all) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        counts[{symbols[i], symbols[i + 1]}] += count;
      }
    }
    const Merge* best = nullptr;
    for (const auto& [pair, count] : counts) {  // in rising order: the last of equals wins
      if (count >= least && (best == nullptr || count >= counts[*best])) best = &pair;
    }
    if (best == nullptr) break;
    merges.push_back(*best);
    for (auto& [symbols, count] : all) symbols = merged(symbols, merges.back());
  }
  return merges;
}

Symbols naive_split(const std::string& word, const std::vector<Merge>& merges) {
  Symbols symbols = characters_of(word);
  for (;;) {
    std::ptrdiff_t best = -1;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge pair{symbols[i], symbols[i + 1]};
      const auto last = std::find(merges.rbegin(), merges.rend(), pair);
      const std::ptrdiff_t rank = merges.rend() - last - 1;
      if (rank >= 0 && (best < 0 || rank < best)) best = rank;
    }
    if (best < 0) return symbols;
    symbols = merged(symbols, merges[static_cast<std::size_t>(best)]);
  }
}

// Words over few characters, so that pairs repeat, overlap and tie.
std::vector<CountedWord> random_words(std::uint64_t seed, std::size_t count,
                                      const Symbols& letters) {
  std::map<std::string, i64> words;
  for (std::size_t i = 0; i < count; ++i) {
    std::string word;
    const std::uint32_t length = 1 + RandomKey{.seed = seed}.words(100 * i).word[0] % 9;
    for (std::uint32_t k = 0; k < length; ++k) {
      word += letters[RandomKey{.seed = seed}.words(100 * i + 1 + k).word[0] % letters.size()];
    }
    words[word] += 1 + RandomKey{.seed = seed}.words(100 * i + 50).word[0] % 3;
  }
  std::vector<CountedWord> counted;
  for (const auto& [word, times] : words) counted.push_back({word, times});
  return counted;
}

}  // namespace

TEST_SUITE("wordlm") {

TEST_CASE("byte pairs: merges by hand") {
  // low ×5, lower ×2: "l o" and "o w" both occur twice or more; "lo" 7, "ow" 2, "ow</w>" 5.
  const std::vector<CountedWord> words = {{"low", 5}, {"lower", 2}};
  const std::vector<Merge> wanted = {
      {"l", "o"}, {"lo", "w</w>"}, {"w", "e"}, {"we", "r</w>"}, {"lo", "wer</w>"}};
  CHECK(learn_merges(words, 100, 2) == wanted);
  CHECK(learn_merges(words, 2, 2).size() == 2);
  CHECK(learn_merges(words, 100, 6).size() == 1);
  CHECK(learn_merges(words, 100, 8).empty());
  CHECK(learn_merges({}, 100, 1).empty());
  CHECK(learn_merges({{"a", 9}}, 100, 1).empty());
}

TEST_CASE("byte pairs: among equals the largest by code points, not by anything else") {
  // é (U+00E9) is above every ASCII letter.
  const std::vector<CountedWord> words = {{"azc", 4}, {"b\u00e9d", 4}, {"xyc", 4}};
  CHECK(learn_merges(words, 2, 1) == std::vector<Merge>{{"\u00e9", "d</w>"}, {"z", "c</w>"}});
  CHECK(learn_merges({{"ab", 4}, {"a\u00e9", 4}}, 1, 1) == std::vector<Merge>{{"a", "\u00e9</w>"}});
  // "aaa": the pair occurs twice in it, and is merged once, from the left.
  CHECK(learn_merges({{"aaab", 1}}, 3, 1) ==
        std::vector<Merge>{{"a", "a"}, {"aa", "a"}, {"aaa", "b</w>"}});
}

TEST_CASE("byte pairs: learnt and encoded as the definition says") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const Symbols letters = seed % 3 == 0   ? Symbols{"a", "b"}
                            : seed % 3 == 1 ? Symbols{"a", "b", "\u00e9", "<"}
                                            : Symbols{"a"};
    const std::vector<CountedWord> words = random_words(seed, 10 + 3 * seed, letters);
    const i64 least = 1 + static_cast<i64>(seed % 4);
    const std::vector<Merge> merges = learn_merges(words, 300, least);
    REQUIRE(merges == naive_merges(words, 300, least));
    const MergeTable table(merges);
    Symbols others = letters;
    others.push_back("q");  // in no merge
    for (const CountedWord& word : random_words(seed + 1000, 50, others)) {
      REQUIRE(table.split(word.word) == naive_split(word.word, merges));
    }
  }
}

TEST_CASE("byte pairs: no merges, and a word of many characters") {
  const MergeTable none({});
  CHECK(none.split("ab\u00e9") == Symbols{"a", "b", "\u00e9</w>"});
  CHECK(none.split("").empty());
  const MergeTable table({{"a", "a"}, {"aa", "aa"}});
  const Symbols pieces = table.split(std::string(65'536, 'a'));
  CHECK(pieces.front() == "aaaa");
  CHECK(pieces.back() == "a</w>");
}

}  // TEST_SUITE("wordlm")
