// Messages about a name that does not exist.
#pragma once

#include <string>
#include <vector>

namespace weft {

// The name with the fewest edits from `wanted`, if these are at most a third, rounded up, of the
// longer name's letters; otherwise "". A swap of two neighbours is one edit.
std::string nearest_name(const std::string& wanted, const std::vector<std::string>& names);
// "full, agglomerative; did you mean full?" for error messages; the names alone where none is
// close.
std::string known_names(const std::string& wanted, const std::vector<std::string>& names);

}  // namespace weft
