#include "apps/data/saved_lines.h"

#include <algorithm>
#include <charconv>

#include "runtime/error.h"

namespace weft {

std::string_view SavedLines::next(const char* wanted) {
  ++number_;
  const std::size_t end = rest_.find('\n');
  if (end == std::string_view::npos) refuse(wanted, rest_.empty() ? "the end" : rest_);
  const std::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end + 1);
  return line;
}

void SavedLines::head(std::string_view line) {
  const std::string wanted = fmt::format("\"{}\"", line.substr(0, line.size() - 1));
  const std::string_view found = next(wanted.c_str());
  if (found != line.substr(0, line.size() - 1)) refuse(wanted.c_str(), found);
}

std::size_t SavedLines::count(const char* wanted, std::string_view what) {
  const std::string_view line = next(wanted);
  std::size_t count = 0;
  const auto [end, status] = std::from_chars(line.data(), line.data() + line.size(), count);
  const std::string_view rest(end, static_cast<std::size_t>(line.data() + line.size() - end));
  if (status != std::errc{} || rest != what) refuse(wanted, line);
  return count;
}

std::vector<Merge> SavedLines::merges() {
  std::vector<Merge> merges;
  for (std::size_t left = count("the number of merges", " merges"); left > 0; --left) {
    const char* const wanted = "two symbols with a space between them";
    const std::string_view line = next(wanted);
    const std::size_t space = line.find(' ');
    const bool good = space != line.npos && space > 0 && space + 1 < line.size() &&
                      line.find(' ', space + 1) == line.npos;
    if (!good) refuse(wanted, line);
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

void SavedLines::finish() {
  ++number_;
  if (!rest_.empty()) refuse("the end", rest_);
}

void SavedLines::refuse(const char* wanted, std::string_view found) const {
  fail("{}: damaged word pieces: line {}: wanted {}, found \"{}\"", source_, number_, wanted,
       found.substr(0, std::min<std::size_t>(found.find('\n'), 80)));
}

std::string merge_lines(const std::vector<Merge>& merges) {
  std::string text = fmt::format("{} merges\n", merges.size());
  for (const auto& [first, second] : merges) text += first + ' ' + second + '\n';
  return text;
}

}  // namespace weft
