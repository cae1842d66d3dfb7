#include "apps/data/byte_pairs.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "apps/data/unicode.h"

namespace weft {
namespace {

using Symbol = std::int32_t;

constexpr std::uint64_t key_of(Symbol first, Symbol second) {
  return std::uint64_t{static_cast<std::uint32_t>(first)} << 32 |
         static_cast<std::uint32_t>(second);
}

// Calls f(symbol, its offset in the word) for each character of the word. The last symbol ends with
// the end mark.
template <class F>
void for_each_character(std::string_view word, const char* end_of_word, const F& f) {
  for (std::size_t at = 0, next = 0; at < word.size(); at = next) {
    next = at + code_point(word, at).bytes;
    std::string name(word.substr(at, next - at));
    if (next == word.size()) name += end_of_word;
    f(name, at);
  }
}

// All words, and the count of each pair of adjacent symbols.
class PairCounts {
 public:
  PairCounts(const std::vector<CountedWord>& words, const char* end_of_word);
  // Finds the most frequent pair with a count of at least `least`; returns false if there is none.
  bool best(i64 least, std::uint64_t& key);
  Merge merge(std::uint64_t key);

 private:
  struct Word {
    std::vector<Symbol> symbols;
    i64 count;
  };
  struct Pair {
    i64 count = 0;
    std::vector<std::int32_t> words;  // the words that contain it, and some that did earlier
  };
  struct Entry {
    i64 count;
    std::uint64_t key;
  };
  struct Lower {
    const std::vector<std::string>& names;
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.count != b.count) return a.count < b.count;
      const auto &a1 = names[a.key >> 32], &b1 = names[b.key >> 32];
      if (a1 != b1) return a1 < b1;
      return names[static_cast<std::uint32_t>(a.key)] < names[static_cast<std::uint32_t>(b.key)];
    }
  };

  Symbol symbol(const std::string& name);
  void add(Symbol first, Symbol second, std::int32_t word);
  void merge_in(std::int32_t word, Symbol first, Symbol second, Symbol merged);

  std::vector<std::string> names_;
  std::unordered_map<std::string, Symbol> symbols_;
  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::priority_queue<Entry, std::vector<Entry>, Lower> heap_{Lower{names_}};
  std::vector<std::uint64_t> risen_;          // pairs whose counts the current merge increased
  std::vector<Symbol> merged_symbols_;        // the new symbols of the word being rewritten
  std::vector<bool> was_merged_, is_merged_;  // by position, in the old and the new word
};

PairCounts::PairCounts(const std::vector<CountedWord>& words, const char* end_of_word) {
  words_.reserve(words.size());
  for (const CountedWord& word : words) {
    words_.push_back({{}, word.count});
    std::vector<Symbol>& symbols = words_.back().symbols;
    for_each_character(
        word.word, end_of_word,
        [&](const std::string& name, std::size_t) { symbols.push_back(symbol(name)); });
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      add(symbols[i], symbols[i + 1], static_cast<std::int32_t>(words_.size() - 1));
    }
  }
  risen_.clear();
  for (const auto& [key, pair] : pairs_) heap_.push({pair.count, key});
}

Symbol PairCounts::symbol(const std::string& name) {
  const auto [at, fresh] = symbols_.try_emplace(name, static_cast<Symbol>(names_.size()));
  if (fresh) names_.push_back(name);
  return at->second;
}

void PairCounts::add(Symbol first, Symbol second, std::int32_t word) {
  const std::uint64_t key = key_of(first, second);
  Pair& pair = pairs_[key];
  pair.count += words_[static_cast<std::size_t>(word)].count;
  if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
  risen_.push_back(key);
}

bool PairCounts::best(i64 least, std::uint64_t& key) {
  while (!heap_.empty()) {
    const Entry top = heap_.top();
    heap_.pop();
    const auto found = pairs_.find(top.key);
    const i64 count = found == pairs_.end() ? 0 : found->second.count;
    key = top.key;
    if (count == top.count && count >= least) return true;
    if (count < top.count && count >= least) heap_.push({count, top.key});
  }
  return false;
}

Merge PairCounts::merge(std::uint64_t key) {
  const auto first = static_cast<Symbol>(key >> 32);
  const auto second = static_cast<Symbol>(static_cast<std::uint32_t>(key));
  const Merge merge{names_[static_cast<std::size_t>(first)],
                    names_[static_cast<std::size_t>(second)]};
  const Symbol merged = symbol(merge.first + merge.second);
  const std::vector<std::int32_t> words = std::move(pairs_.extract(key).mapped().words);
  risen_.clear();
  for (const std::int32_t word : words) merge_in(word, first, second, merged);
  std::sort(risen_.begin(), risen_.end());
  risen_.erase(std::unique(risen_.begin(), risen_.end()), risen_.end());
  for (const std::uint64_t pair : risen_) heap_.push({pairs_[pair].count, pair});
  return merge;
}

void PairCounts::merge_in(std::int32_t word, Symbol first, Symbol second, Symbol merged) {
  auto& [symbols, count] = words_[static_cast<std::size_t>(word)];
  merged_symbols_.clear();
  is_merged_.clear();
  was_merged_.assign(symbols.size(), false);
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const bool here = i + 1 < symbols.size() && symbols[i] == first && symbols[i + 1] == second;
    merged_symbols_.push_back(here ? merged : symbols[i]);
    is_merged_.push_back(here);
    if (here) was_merged_[i] = was_merged_[i + 1] = true;
    i += here ? 1 : 0;
  }
  if (merged_symbols_.size() == symbols.size()) return;
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    if (!was_merged_[i] && !was_merged_[i + 1]) continue;
    const auto pair = pairs_.find(key_of(symbols[i], symbols[i + 1]));
    if (pair != pairs_.end()) pair->second.count -= count;  // absent: it is the pair being merged
  }
  symbols = merged_symbols_;
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    if (is_merged_[i] || is_merged_[i + 1]) add(symbols[i], symbols[i + 1], word);
  }
}

}  // namespace

std::vector<Merge> learn_merges(const std::vector<CountedWord>& words, std::size_t most, i64 least,
                                const char* end_of_word) {
  PairCounts counts(words, end_of_word);
  std::vector<Merge> merges;
  for (std::uint64_t key = 0; merges.size() < most && counts.best(least, key);) {
    merges.push_back(counts.merge(key));
  }
  return merges;
}

MergeTable::MergeTable(const std::vector<Merge>& merges, const char* end_of_word)
    : end_of_word_(end_of_word) {
  const auto add = [&](const std::string& name) {
    return symbols_.try_emplace(name, static_cast<Symbol>(symbols_.size())).first->second;
  };
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [first, second] = merges[rank];
    const std::uint64_t key = key_of(add(first), add(second));
    joins_[key] = {static_cast<std::int32_t>(rank), add(first + second)};
  }
}

// The learnt merge of two adjacent symbols; if there is none, a Join with the worst rank.
MergeTable::Join MergeTable::join(Symbol first, Symbol second) const {
  const auto found = joins_.find(key_of(first, second));
  if (found != joins_.end()) return found->second;
  return {std::numeric_limits<std::int32_t>::max(), -1};
}

std::vector<std::string> MergeTable::split(std::string_view word) const {
  struct Part {
    Symbol symbol;      // −1 for a character that occurs in no merge
    std::size_t begin;  // offset in the word
    Join next;          // the merge with the next part
  };
  std::vector<Part> parts;
  for_each_character(word, end_of_word_, [&](const std::string& name, std::size_t begin) {
    const auto found = symbols_.find(name);
    parts.push_back({found == symbols_.end() ? -1 : found->second, begin, {}});
  });
  const auto update = [&](std::size_t i) {
    parts[i].next = join(parts[i].symbol, i + 1 < parts.size() ? parts[i + 1].symbol : -1);
  };
  for (std::size_t i = 0; i < parts.size(); ++i) update(i);
  const auto by_rank = [](const Part& a, const Part& b) { return a.next.rank < b.next.rank; };
  while (!parts.empty()) {
    const Join best = std::min_element(parts.begin(), parts.end(), by_rank)->next;
    if (best.symbol < 0) break;
    std::vector<std::size_t> changed;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < parts.size(); ++i, ++kept) {
      parts[kept] = parts[i];
      if (parts[i].next.rank != best.rank) continue;
      parts[kept].symbol = best.symbol;
      changed.push_back(kept);
      ++i;  // skip the second of the pair
    }
    parts.resize(kept);
    for (const std::size_t i : changed) {
      update(i);
      if (i > 0) update(i - 1);
    }
  }
  std::vector<std::string> pieces;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t end = i + 1 < parts.size() ? parts[i + 1].begin : word.size();
    pieces.emplace_back(word.substr(parts[i].begin, end - parts[i].begin));
  }
  if (!pieces.empty()) pieces.back() += end_of_word_;
  return pieces;
}

}  // namespace weft
