#include "apps/data/paper_pieces.h"

#include <algorithm>
#include <unordered_set>

#include "apps/data/saved_lines.h"
#include "apps/data/unicode.h"
#include "apps/data/word_tokens.h"
#include "runtime/error.h"

namespace weft {
namespace {

constexpr std::int32_t first_piece = 4;
constexpr std::string_view end_of_word = "</w>";

// The form of a token from which pieces are learnt.
std::string word_of(const WordToken& token) { return token.number ? "<num>" : lower(token.text); }

void check_length(std::string_view token) {
  require(token.size() <= PaperPieces::longest_word,
          "a word of {} bytes; word pieces accept at most {}: give text with spaces or punctuation "
          "between words",
          token.size(), PaperPieces::longest_word);
}

using Counts = std::unordered_map<std::string, i64>;

// The pieces of all words, the most frequent first.
std::vector<std::string> counted_pieces(const Counts& words, const MergeTable& table, i64 lines) {
  Counts counts{{"<seq>", lines}, {"</seq>", lines}};
  for (const auto& [word, count] : words) {
    for (const std::string& piece : table.split(word)) counts[piece] += count;
  }
  std::vector<std::pair<i64, std::string>> order;
  for (const auto& [piece, count] : counts) order.emplace_back(count, piece);
  std::sort(order.rbegin(), order.rend());
  std::vector<std::string> pieces;
  for (auto& [count, piece] : order) pieces.push_back(std::move(piece));
  return pieces;
}

}  // namespace

std::shared_ptr<const PaperPieces> PaperPieces::learn(std::string_view text,
                                                      const std::string& source) {
  std::unordered_map<std::string_view, i64> tokens;
  i64 lines = 0, numbers = 0;
  for_each_line(text, source, [&](std::string_view line) {
    ++lines;
    WordTokens rest(line);
    while (const auto token = rest.next()) {
      check_length(token->text);
      ++(token->number ? numbers : tokens[token->text]);
    }
  });
  Counts words;
  if (numbers > 0) words["<num>"] = numbers;
  for (const auto& [token, count] : tokens) words[lower(token)] += count;
  std::vector<CountedWord> counted;
  for (const auto& [word, count] : words) counted.push_back({word, count});
  std::vector<Merge> merges = learn_merges(counted, merge_count, least_pair_count);
  std::vector<std::string> pieces = counted_pieces(words, MergeTable(merges), lines);
  return std::make_shared<const PaperPieces>(std::move(merges), std::move(pieces));
}

PaperPieces::PaperPieces(std::vector<Merge> merges, std::vector<std::string> pieces)
    : merges_(std::move(merges)), pieces_(std::move(pieces)), table_(merges_) {
  for (const std::string& piece : pieces_) {
    ids_.emplace(piece, first_piece + static_cast<std::int32_t>(ids_.size()));
  }
}

i64 PaperPieces::size() const { return first_piece + static_cast<i64>(pieces_.size()); }

PieceIds PaperPieces::encode(std::string_view line) const {
  check_utf8(line, "text");
  PieceIds ids;
  WordTokens tokens(line);
  std::string key;
  while (const auto token = tokens.next()) {
    check_length(token->text);
    key = token->number ? "<num>" : token->text;
    auto known = known_words_.find(key);
    if (known == known_words_.end()) {
      known = known_words_.emplace(key, PieceIds{}).first;
      for (const std::string& piece : table_.split(word_of(*token))) {
        const auto id = ids_.find(piece);
        known->second.push_back(id == ids_.end() ? special().unknown : id->second);
      }
    }
    ids.insert(ids.end(), known->second.begin(), known->second.end());
  }
  return ids;
}

std::string PaperPieces::decode(std::span<const std::int32_t> ids) const {
  std::string text, word;
  std::vector<std::string> words;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  const auto end_line = [&] {
    end_word();
    text += detokenized(words);
    words.clear();
  };
  for (const std::int32_t id : ids) {
    require(id >= 0 && id < size(), "word pieces: there is no id {}; there are 0 to {}", id,
            size() - 1);
    if (id >= first_piece) {
      const std::string_view piece = pieces_[static_cast<std::size_t>(id - first_piece)];
      const bool last = piece.ends_with(end_of_word);
      word += piece.substr(0, piece.size() - (last ? end_of_word.size() : 0));
      if (last) end_word();
    } else if (id == special().unknown) {
      end_word();
      words.emplace_back("<UNK>");
    } else if (id == special().end) {
      end_line();
      text += '\n';
    }
  }
  end_line();
  return text;
}

std::string PaperPieces::save() const {
  std::string text = std::string(saved_head) + merge_lines(merges_);
  text += fmt::format("{} pieces\n", pieces_.size());
  for (const std::string& piece : pieces_) text += piece + '\n';
  return text;
}

std::shared_ptr<const PaperPieces> PaperPieces::restore(const std::string& saved,
                                                        const std::string& source) {
  check_utf8(saved, source);
  SavedLines lines(saved, source);
  lines.head(saved_head);
  // The counts in the file are not trusted: memory grows with the lines actually read.
  std::vector<Merge> merges = lines.merges();
  std::vector<std::string> pieces;
  std::unordered_set<std::string_view> seen;
  for (std::size_t left = lines.count("the number of pieces", " pieces"); left > 0; --left) {
    const char* const wanted = "a piece that is not above";
    const std::string_view line = lines.next(wanted);
    if (line.empty() || !seen.insert(line).second) lines.refuse(wanted, line);
    pieces.emplace_back(line);
  }
  lines.finish();
  return std::make_shared<const PaperPieces>(std::move(merges), std::move(pieces));
}

}  // namespace weft
