#include "apps/data/kept_pieces.h"

#include <filesystem>

#include "apps/data/digest.h"
#include "apps/data/word_tokens.h"
#include "nn/file.h"
#include "runtime/error.h"

namespace weft {
namespace {

std::string checksum(std::string_view bytes) { return digest(std::as_bytes(std::span(bytes))); }

std::string first_lines(std::string_view text) {
  return fmt::format("weft kept pieces 1\nlearnt from {}\n", checksum(text));
}

std::string contents_line(std::string_view saved) {
  return fmt::format("contents {}\n", checksum(saved));
}

std::shared_ptr<const PaperPieces> read_kept(std::string_view text, const std::string& path) {
  const std::string kept = read_file(path), head = first_lines(text);
  require(kept.starts_with("weft kept pieces 1\n"), "{}: not word pieces of this version of weft",
          path);
  require(kept.starts_with(head), "{}: was learnt from another text", path);
  const std::size_t begin = head.size() + contents_line("").size();
  const std::string saved = kept.size() < begin ? "" : kept.substr(begin);
  require(kept == head + contents_line(saved) + saved, "{}: is damaged", path);
  return PaperPieces::restore(saved, path);
}

void write_kept(const PaperPieces& pieces, std::string_view text, const std::string& path) {
  const std::string saved = pieces.save();
  write_file(path, first_lines(text) + contents_line(saved) + saved);
}

}  // namespace

std::shared_ptr<const PaperPieces> kept_or_learnt(std::string_view text, const std::string& file,
                                                  bool keep, std::vector<std::string>& warnings) {
  const std::string path = file + ".pieces";
  std::error_code unknown;
  if (std::filesystem::exists(path, unknown)) {
    try {
      return read_kept(text, path);
    } catch (const Error& error) {
      warnings.push_back(fmt::format("{}; learning the word pieces anew", error.what()));
    }
  }
  const auto pieces = PaperPieces::learn(without_split_marks(text), file);
  if (!keep) return pieces;
  try {
    write_kept(*pieces, text, path);
  } catch (const Error& error) {
    warnings.push_back(fmt::format("the word pieces are not saved: {}", error.what()));
  }
  return pieces;
}

}  // namespace weft
