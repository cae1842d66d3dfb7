#include "apps/common/paper_pieces.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "apps/common/unicode.h"
#include "apps/common/word_tokens.h"
#include "runtime/error.h"

namespace weft {
namespace {

constexpr std::int32_t first_piece = 4;
constexpr std::string_view end_of_word = "</w>";

// As pieces see a token.
std::string word_of(const WordToken& token) { return token.number ? "<num>" : lower(token.text); }

void check_length(std::string_view token) {
  require(token.size() <= PaperPieces::longest_word,
          "a word of {} bytes; the longest that word pieces take is {}: give text whose words end, "
          "at spaces or punctuation",
          token.size(), PaperPieces::longest_word);
}

// The lines of a saved vocabulary.
class SavedLines {
 public:
  SavedLines(std::string_view text, const std::string& source) : rest_(text), source_(source) {}

  std::string_view next(const char* wanted) {
    ++number_;
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) refuse(wanted, rest_.empty() ? "the end" : rest_);
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

  // "<count> <what>"
  std::size_t count(const char* wanted, std::string_view what) {
    const std::string_view line = next(wanted);
    std::size_t count = 0;
    const auto [end, status] = std::from_chars(line.data(), line.data() + line.size(), count);
    const std::string_view rest(end, line.data() + line.size());
    if (status != std::errc{} || rest != what) refuse(wanted, line);
    return count;
  }

  void finish() {
    ++number_;
    if (!rest_.empty()) refuse("the end", rest_);
  }

  [[noreturn]] void refuse(const char* wanted, std::string_view found) const {
    fail("{}: damaged word pieces: line {}: wanted {}, found \"{}\"", source_, number_, wanted,
         found.substr(0, std::min<std::size_t>(found.find('\n'), 80)));
  }

 private:
  std::string_view rest_;
  const std::string& source_;
  std::size_t number_ = 0;
};

using Counts = std::unordered_map<std::string, std::int64_t>;

// The pieces of all words, the most frequent first.
std::vector<std::string> counted_pieces(const Counts& words, const MergeTable& table,
                                        std::int64_t lines) {
  Counts counts{{"<seq>", lines}, {"</seq>", lines}};
  for (const auto& [word, count] : words) {
    for (const std::string& piece : table.split(word)) counts[piece] += count;
  }
  std::vector<std::pair<std::int64_t, std::string>> order;
  for (const auto& [piece, count] : counts) order.emplace_back(count, piece);
  std::sort(order.rbegin(), order.rend());
  std::vector<std::string> pieces;
  for (auto& [count, piece] : order) pieces.push_back(std::move(piece));
  return pieces;
}

}  // namespace

std::shared_ptr<const PaperPieces> PaperPieces::learn(std::string_view text,
                                                      const std::string& source) {
  std::unordered_map<std::string_view, std::int64_t> tokens;
  std::int64_t lines = 0, numbers = 0;
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

std::int64_t PaperPieces::size() const {
  return first_piece + static_cast<std::int64_t>(pieces_.size());
}

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
  std::string text = fmt::format("{}{} merges\n", saved_head, merges_.size());
  for (const auto& [first, second] : merges_) text += first + ' ' + second + '\n';
  text += fmt::format("{} pieces\n", pieces_.size());
  for (const std::string& piece : pieces_) text += piece + '\n';
  return text;
}

std::shared_ptr<const PaperPieces> PaperPieces::restore(const std::string& saved,
                                                        const std::string& source) {
  check_utf8(saved, source);
  SavedLines lines(saved, source);
  const std::string_view head = lines.next("\"paper pieces 1\"");
  if (head != saved_head.substr(0, saved_head.size() - 1)) lines.refuse("\"paper pieces 1\"", head);
  // The counts are not trusted: memory is asked for by the lines that are there.
  std::vector<Merge> merges;
  for (std::size_t left = lines.count("the number of merges", " merges"); left > 0; --left) {
    const char* const wanted = "two symbols with a space between them";
    const std::string_view line = lines.next(wanted);
    const std::size_t space = line.find(' ');
    const bool good = space != line.npos && space > 0 && space + 1 < line.size() &&
                      line.find(' ', space + 1) == line.npos;
    if (!good) lines.refuse(wanted, line);
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
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
