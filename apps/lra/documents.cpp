#include "apps/lra/documents.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "apps/lra/lines.h"
#include "apps/lra/reviews.h"
#include "runtime/error.h"

namespace weft::lra {
namespace {

std::span<const std::uint8_t> start_of(std::string_view text) {
  const std::string_view start = text.substr(0, longest_text);
  return {reinterpret_cast<const std::uint8_t*>(start.data()), start.size()};
}

}  // namespace

Sequences read_pairs(const std::string& file) {
  Sequences part;
  part.together = 2;
  each_line(
      file, "Retrieval as Long Range Arena releases it",
      [&](const std::string& line, const std::string& place) {
        std::array<std::string_view, 5> columns;
        std::size_t found = 0;
        for (std::size_t at = 0; at <= line.size(); ++found) {
          const std::size_t end = std::min(line.find('\t', at), line.size());
          if (found < columns.size()) {
            columns[found] = std::string_view(line).substr(at, end - at);
          }
          at = end + 1;
        }
        require(found == columns.size(),
                "{}: has {} columns; wanted label, two names and two texts, with tabs between",
                place, found);
        const bool one = columns[0] == "1" || columns[0] == "1.0";
        require(one || columns[0] == "0" || columns[0] == "0.0",
                "{}: its label is '{}'; wanted 0, 0.0, 1 or 1.0", place, columns[0].substr(0, 40));
        part.add(start_of(columns[3]), start_of(columns[4]), one);
      });
  require(part.count() > 0, "{}: has no pairs", file);
  return part;
}

SequenceTask read_documents(const std::string& folder) {
  SequenceTask task;
  task.source = folder;
  task.classes = {"unrelated", "cited"};
  task.longest = longest_text;
  task.train = read_pairs(folder + "/new_aan_pairs.train.tsv");
  task.validation = read_pairs(folder + "/new_aan_pairs.eval.tsv");
  task.test = read_pairs(folder + "/new_aan_pairs.test.tsv");
  return task;
}

}  // namespace weft::lra
