// Tables of all mechanisms.
#pragma once

#include <string>

namespace weft {

// Name, title, causal, time and memory against length, in at most 100 columns.
std::string plain_table();
// All that the fact sheets say, as ops/attention/README.md has it.
std::string markdown_table();

}  // namespace weft
