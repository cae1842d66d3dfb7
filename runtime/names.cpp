#include "runtime/names.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "runtime/listed.h"

namespace weft {
namespace {

// Levenshtein distance in which a swap of two neighbours is one edit (optimal string alignment).
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> above2, above, row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    above2 = std::exchange(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], above2[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(const std::string& wanted, const std::vector<std::string>& names) {
  std::string nearest;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::string& name : names) {
    const std::size_t edits = edit_distance(name, wanted);
    const std::size_t longer = std::max(name.size(), wanted.size());
    if (edits >= least || edits > std::max<std::size_t>(1, (longer + 2) / 3)) continue;
    nearest = name;
    least = edits;
  }
  return nearest;
}

std::string known_names(const std::string& wanted, const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  const std::string near = nearest_name(wanted, names);
  return fmt::format("{}{}", listed(names),
                     near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

}  // namespace weft
