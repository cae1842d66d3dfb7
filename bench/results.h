// The file of a run of the attention benchmark: JSON Lines, appended and flushed a row at a time,
// so that an interrupted run keeps its measurements.
//
// Every line has
//     format     of this file; a file of another format is refused
//     kind       "row", what was measured; "cut", what a budget left out; "error", what went wrong
//     library, settings, device, processor, name, length     the key of the line
// and a row has forward_ms, backward_ms and peak_bytes, too. The bytes are null where they are
// unknown, backward's time where another library has no backward.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/measure.h"
#include "runtime/types.h"

namespace weft::bench {

constexpr int results_format = 1;

// The identity of a measurement: two lines with the same key are the same measurement.
struct Key {
  std::string library, settings, device, processor, name;
  i64 length = 0;

  friend bool operator==(const Key&, const Key&) = default;
};
Key key_of(const Row& row);
// The letter of the row's length: 'S' for keys, of which each of `queries` sees all; 'N' for both.
char letter_of_length(const Row& row);

class Results {
 public:
  Results() = default;  // rows without a file
  // Reads the lines of an earlier run. Throws if the file cannot be opened, has another format, is
  // damaged, or another run is writing to it. A partial last line, left by an interruption, is
  // removed.
  explicit Results(const std::string& path);
  ~Results();
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  const std::vector<Row>& lines() const { return lines_; }
  bool torn() const { return torn_; }     // whether a partial line was removed
  const Row* find(const Key& key) const;  // the row with this key; null if there is none

  // Adds a line, unless the last one with its key is of the same kind and reason: a repeated run
  // adds nothing. Throws if it cannot be written, and leaves whole lines only.
  void add(const Row& line);

 private:
  std::string path_;
  int descriptor_ = -1;
  bool torn_ = false;
  std::vector<Row> lines_;
};

// Whether a line is of the run with this identity: its library, settings, device and processor.
bool is_of_run(const Row& line, const Row& identity);
// The last row of that run for each name and length, in the order in which names first occur, then
// by length.
std::vector<Row> rows_of_run(const std::vector<Row>& lines, const Row& identity);

// All of them as comma-separated values with a header of their keys.
std::string csv(const std::vector<Row>& rows);

}  // namespace weft::bench
