#include "apps/data/word_pieces.h"

#include <algorithm>

#include "apps/data/byte_pieces.h"
#include "apps/data/paper_pieces.h"
#include "apps/data/sentence_pieces.h"
#include "apps/data/unicode.h"
#include "runtime/error.h"

namespace weft {
namespace {

// The line without white space at both ends.
std::string_view stripped(std::string_view line) {
  std::size_t begin = line.size(), end = 0;
  for (std::size_t at = 0; at < line.size();) {
    const CodePoint c = code_point(line, at);
    if (!is_space(c.value)) {
      begin = std::min(begin, at);
      end = at + c.bytes;
    }
    at += c.bytes;
  }
  return begin < end ? line.substr(begin, end - begin) : std::string_view{};
}

}  // namespace

std::shared_ptr<const WordPieces> restore_pieces(const std::string& saved,
                                                 const std::string& source) {
  if (saved.starts_with(BytePieces::saved_head)) return BytePieces::restore(saved, source);
  if (saved.starts_with(PaperPieces::saved_head)) return PaperPieces::restore(saved, source);
  if (saved.starts_with(saved_sentence_pieces)) return restore_sentence_pieces(saved, source);
  fail("{}: holds no word pieces of this version of weft: wanted a first line like \"{}\"", source,
       PaperPieces::saved_head.substr(0, PaperPieces::saved_head.size() - 1));
}

void for_each_line(std::string_view text, const std::string& source,
                   const std::function<void(std::string_view)>& f) {
  std::size_t number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = stripped(text.substr(at, end - at));
    at = end + 1;
    if (line.empty()) continue;
    try {
      f(line);
    } catch (const Error& error) {
      fail("{}: line {}: {}", source, number, error.what());
    }
  }
}

PieceIds WordPieces::stream(std::string_view text, const std::string& source) const {
  const Special own = special();
  PieceIds stream;
  for_each_line(text, source, [&](std::string_view line) {
    const PieceIds ids = encode(line);
    stream.push_back(own.begin);
    stream.insert(stream.end(), ids.begin(), ids.end());
    stream.push_back(own.end);
  });
  return stream;
}

}  // namespace weft
