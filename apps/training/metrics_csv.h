// metrics.csv: the lines of metrics.jsonl as a table (RFC 4180, but for its line ends, which are
// \n alone). The header is known before the first line and never changes; where a line has no such
// key, the cell is empty.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "apps/command_line/json.h"

namespace weft {

// The columns of a run: what every training logs, where `round` and `score` are the task's words
// (train.h), and what else stands in the app's own lines.
std::vector<std::string> metric_columns(const std::string& round, const std::string& score,
                                        const std::vector<std::string>& own);

class MetricsCsv {
 public:
  // Makes the file, or empties it, and writes the header.
  MetricsCsv(const std::string& path, std::vector<std::string> columns);
  // Throws where a pipe stands there, which would hold the writer up until somebody reads it.
  static void check_place(const std::string& path);
  // `line` is an object of numbers, strings and booleans. Numbers stand as in metrics.jsonl; one
  // that is not finite, which JSON has as null, is nan. Throws for a key that is no column.
  void add(const Json& line);

 private:
  void write(const std::vector<std::string>& cells);

  std::string path_;
  std::vector<std::string> columns_;
  std::ofstream file_;
};

}  // namespace weft
