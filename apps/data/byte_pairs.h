// Byte-pair encoding of words (R. Sennrich, B. Haddow and A. Birch, "Neural machine translation of
// rare words with subword units", ACL 2016, arXiv:1508.07909).
//
// Learning. A word is a sequence of symbols: its characters, the last of them with a mark of the
// end behind it, </w> or another or none. Again and again, the pair of neighbouring symbols that is
// the most frequent over all words, each as often as it occurs, becomes one symbol in all of them.
// Among equally frequent pairs the lexicographically largest is taken, first symbol before second,
// by code points.
//
// Encoding. Of all pairs of neighbours in a word the one that was learnt first is merged, wherever
// it stands, from left to right, until no learnt pair is left. (A pair can be learnt twice, where
// its first symbol later arises in another way; then the second time counts.)
//
// Counts are kept, not taken anew: a merge touches the words that hold the pair, and in them the
// pairs beside it. A heap gives the most frequent pair; its entries may be too high, since a count
// that falls leaves them as they are, and then go back with the true one.
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
  std::string word;  // not empty, UTF-8
  i64 count;
};

// At most `most` merges, the first learnt first, of pairs that occur `least` times or more. The
// words must differ.
std::vector<Merge> learn_merges(const std::vector<CountedWord>& words, std::size_t most, i64 least,
                                const char* end_of_word = "</w>");

// The encoding of words by learnt merges.
class MergeTable {
 public:
  explicit MergeTable(const std::vector<Merge>& merges, const char* end_of_word = "</w>");
  // The pieces of a word; the last ends with the mark.
  std::vector<std::string> split(std::string_view word) const;

 private:
  struct Join {
    std::int32_t rank, symbol;
  };
  Join join(std::int32_t first, std::int32_t second) const;

  const char* end_of_word_;
  std::unordered_map<std::string, std::int32_t> symbols_;
  std::unordered_map<std::uint64_t, Join> joins_;  // by a pair of symbols
};

}  // namespace weft
