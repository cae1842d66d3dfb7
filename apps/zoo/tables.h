// Tables of all mechanisms.
#pragma once

#include <string>

namespace weft {

// Name, title, causal, time and memory against length, in at most 100 columns.
std::string plain_table();
// All facts of the sheets: the table of ops/attention/README.md.
std::string markdown_table();

}  // namespace weft
