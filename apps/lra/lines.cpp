#include "apps/lra/lines.h"

#include <fstream>

#include "runtime/error.h"
#include "runtime/types.h"

namespace weft::lra {

void each_line(const std::string& file, const std::string& wanted,
               const std::function<void(const std::string& line, const std::string& place)>& f) {
  std::ifstream in(file, std::ios::binary);
  require(in.is_open(), "{}: cannot be read; wanted {}", file, wanted);
  std::string line;
  for (i64 number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    f(line, fmt::format("{}: line {}", file, number));
  }
  require(!in.bad(), "{}: cannot be read to its end", file);
}

}  // namespace weft::lra
