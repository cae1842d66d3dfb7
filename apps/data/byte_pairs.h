// Byte-pair encoding of words (R. Sennrich, B. Haddow and A. Birch, "Neural machine translation of
// rare words with subword units", ACL 2016, arXiv:1508.07909).
//
// Learning. A word is a sequence of symbols: its characters, the last one followed by an end mark
// (</w>, another, or none). Each merge takes the most frequent pair of adjacent symbols, over all
// words weighted by their counts, and replaces it by one symbol everywhere. Ties go to the
// lexicographically largest pair: by first symbol, then by second, by code points.
//
// Encoding. Repeatedly, the adjacent pair of the word that was learnt first is merged at all its
// occurrences, from left to right, until no learnt pair is left. (A pair can be learnt twice, if
// its first symbol arises again from another merge; then the second rank counts.)
//
// Counts are updated incrementally: a merge visits only the words that contain the pair, and
// changes the counts of the pairs adjacent to it. A heap gives the most frequent pair. Its entries
// can be too high, since a falling count does not update them; such an entry is pushed again with
// the current count.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/types.h"

namespace weft {

using Merge = std::pair<std::string, std::string>;

struct CountedWord {
  std::string word;  // UTF-8, not empty
  i64 count;
};

// At most `most` merges, in the order of learning, of pairs that occur at least `least` times. The
// words must be distinct.
std::vector<Merge> learn_merges(const std::vector<CountedWord>& words, std::size_t most, i64 least,
                                const char* end_of_word = "</w>");

// Encodes words with learnt merges.
class MergeTable {
 public:
  explicit MergeTable(const std::vector<Merge>& merges, const char* end_of_word = "</w>");
  // The pieces of a word. The last one ends with the end mark.
  std::vector<std::string> split(std::string_view word) const;

 private:
  struct Join {
    std::int32_t rank, symbol;
  };
  Join join(std::int32_t first, std::int32_t second) const;

  const char* end_of_word_;
  std::unordered_map<std::string, std::int32_t> symbols_;
  std::unordered_map<std::uint64_t, Join> joins_;  // key: a pair of symbols
};

}  // namespace weft
