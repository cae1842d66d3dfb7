#include "apps/data/byte_pieces.h"

#include <array>
#include <charconv>

#include "apps/data/saved_lines.h"
#include "apps/data/unicode.h"
#include "runtime/error.h"

namespace weft {
namespace {

constexpr std::size_t bytes_in_all = 256;

// The printable character that represents each byte, as in GPT-2.
const std::array<std::string, bytes_in_all>& written_bytes() {
  static const std::array<std::string, bytes_in_all> list = [] {
    std::array<std::string, bytes_in_all> written;
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < bytes_in_all; ++byte) {
      const bool prints = (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
      written[byte] = utf8(prints ? byte : next++);
    }
    return written;
  }();
  return list;
}

std::string written(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += written_bytes()[static_cast<unsigned char>(byte)];
  return text;
}

enum class Kind { letter, number, space, other };

Kind kind_of(char32_t c) {
  if (is_space(c)) return Kind::space;
  if (is_letter(c)) return Kind::letter;
  return is_number(c) ? Kind::number : Kind::other;
}

struct Run {
  std::size_t end;   // offset after the last character of the kind
  std::size_t last;  // offset of that character
};

// The run of characters of this kind that begins at `at`; it has at least one.
Run run_of(std::string_view text, std::size_t at, Kind kind) {
  Run run{at, at};
  while (run.end < text.size()) {
    const CodePoint c = code_point_of_any(text, run.end);
    if (kind_of(c.value) != kind) break;
    run.last = run.end;
    run.end += c.bytes;
  }
  return run;
}

std::size_t contraction(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(ending)) return ending.size();
  }
  return 0;
}

// The end of the word at the beginning of `text`.
std::size_t word_end(std::string_view text) {
  if (const std::size_t end = contraction(text); end > 0) return end;
  const std::size_t first = text.starts_with(' ') && text.size() > 1 ? 1 : 0;
  const Kind kind = kind_of(code_point_of_any(text, first).value);
  if (kind != Kind::space) return run_of(text, first, kind).end;
  const Run run = run_of(text, 0, Kind::space);
  return run.end == text.size() || run.last == 0 ? run.end : run.last;
}

}  // namespace

void for_each_byte_word(std::string_view text, const std::function<void(std::string_view)>& f) {
  while (!text.empty()) {
    std::string_view word = text.substr(0, word_end(text));
    text.remove_prefix(word.size());
    for (; !word.empty(); word.remove_prefix(std::min(BytePieces::longest_word, word.size()))) {
      f(word.substr(0, BytePieces::longest_word));
    }
  }
}

std::size_t BytePieces::merges_of(const std::string& name) {
  constexpr std::string_view option = "bpe:merges=";
  if (name == "bpe") return merge_count;
  std::size_t count = 0;
  const auto number = std::string_view(name).substr(std::min(option.size(), name.size()));
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), count);
  require(name.starts_with(option) && status == std::errc{} &&
              end == number.data() + number.size() && count <= most_merges,
          "--pieces: wanted bpe or bpe:merges=N with at most {} of them, got {}", most_merges,
          name);
  return count;
}

std::shared_ptr<const BytePieces> BytePieces::learn(std::string_view text,
                                                    const std::string& name) {
  std::unordered_map<std::string_view, i64> counts;
  for_each_byte_word(text, [&](std::string_view word) { ++counts[word]; });
  std::vector<CountedWord> words;
  for (const auto& [word, count] : counts) words.push_back({written(word), count});
  return std::make_shared<const BytePieces>(
      name, learn_merges(words, merges_of(name), least_pair_count, ""));
}

BytePieces::BytePieces(std::string name, std::vector<Merge> merges)
    : name_(std::move(name)), merges_(std::move(merges)), table_(merges_, "") {
  std::unordered_map<std::string_view, char> byte_of;
  for (std::size_t byte = 0; byte < bytes_in_all; ++byte) {
    byte_of[written_bytes()[byte]] = static_cast<char>(byte);
    bytes_.push_back(std::string(1, static_cast<char>(byte)));
    ids_.emplace(written_bytes()[byte], static_cast<std::int32_t>(byte));
  }
  for (const auto& [first, second] : merges_) {
    const std::string piece = first + second;
    if (!ids_.emplace(piece, static_cast<std::int32_t>(bytes_.size())).second) continue;
    std::string bytes;
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t size = code_point(piece, at).bytes;
      const auto byte = byte_of.find(std::string_view(piece).substr(at, size));
      require(byte != byte_of.end(), "word pieces: \"{}\" has a character that represents no byte",
              piece);
      bytes += byte->second;
      at += size;
    }
    bytes_.push_back(std::move(bytes));
  }
}

WordPieces::Special BytePieces::special() const {
  const auto end = static_cast<std::int32_t>(bytes_.size());
  return {end, end, end, end};
}

PieceIds BytePieces::encode(std::string_view text) const {
  PieceIds ids;
  std::string key;
  for_each_byte_word(text, [&](std::string_view word) {
    key = word;
    auto known = known_words_.find(key);
    if (known == known_words_.end()) {
      known = known_words_.emplace(key, PieceIds{}).first;
      for (const std::string& piece : table_.split(written(word))) {
        known->second.push_back(ids_.at(piece));
      }
    }
    ids.insert(ids.end(), known->second.begin(), known->second.end());
  });
  return ids;
}

PieceIds BytePieces::stream(std::string_view text, const std::string&) const {
  return encode(text);
}

std::string BytePieces::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    require(id >= 0 && id < size(), "word pieces: there is no id {}; there are 0 to {}", id,
            size() - 1);
    if (id + 1 < size()) text += bytes_[static_cast<std::size_t>(id)];
  }
  return text;
}

std::string BytePieces::save() const {
  return fmt::format("{}{}\n{}", saved_head, name_, merge_lines(merges_));
}

std::shared_ptr<const BytePieces> BytePieces::restore(const std::string& saved,
                                                      const std::string& source) {
  check_utf8(saved, source);
  SavedLines lines(saved, source);
  lines.head(saved_head);
  const std::string name(lines.next("bpe"));
  try {
    merges_of(name);
    std::vector<Merge> merges = lines.merges();
    lines.finish();
    return std::make_shared<const BytePieces>(name, std::move(merges));
  } catch (const Error& error) {
    const std::string what = error.what();
    fail("{}{}", what.starts_with(source) ? "" : source + ": ", what);
  }
}

}  // namespace weft
