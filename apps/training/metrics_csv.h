// metrics.csv: the lines of metrics.jsonl as a table (RFC 4180, but with \n as line end). The
// header is fixed before the first line; a key that a line lacks gives an empty cell.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "apps/command_line/json.h"

namespace weft {

// The columns of a run: those of every training, with the task's names for `round` and `score`
// (train.h), and the further keys of the app's own lines.
std::vector<std::string> metric_columns(const std::string& round, const std::string& score,
                                        const std::vector<std::string>& own);

class MetricsCsv {
 public:
  // Creates or truncates the file and writes the header.
  MetricsCsv(const std::string& path, std::vector<std::string> columns);
  // Throws if `path` is a named pipe: opening it would block until a reader opens it.
  static void check_place(const std::string& path);
  // `line` is an object of numbers, strings and booleans. Numbers are written as in metrics.jsonl;
  // null, JSON's form of a number that is not finite, becomes nan. Throws for a key without a
  // column.
  void add(const Json& line);

 private:
  void write(const std::vector<std::string>& cells);

  std::string path_;
  std::vector<std::string> columns_;
  std::ofstream file_;
};

}  // namespace weft
