// Parses the lines of saved word pieces, which are not trusted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/data/byte_pairs.h"

namespace weft {

class SavedLines {
 public:
  // Errors begin with `source`, which must outlive this object.
  SavedLines(std::string_view text, const std::string& source) : rest_(text), source_(source) {}

  std::string_view next(const char* wanted);
  void head(std::string_view line);  // skips the first line, which is `line` with its \n
  // Parses "<count> <what>".
  std::size_t count(const char* wanted, std::string_view what);
  // Parses "M merges" and that many lines "first second".
  std::vector<Merge> merges();
  void finish();
  [[noreturn]] void refuse(const char* wanted, std::string_view found) const;

 private:
  std::string_view rest_;
  const std::string& source_;
  std::size_t number_ = 0;
};

// The text that merges() parses.
std::string merge_lines(const std::vector<Merge>& merges);

}  // namespace weft
