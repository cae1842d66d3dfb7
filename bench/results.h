// The file that a run of the attention benchmark writes: JSON Lines, appended and flushed a row at
// a time, so that an interrupted run keeps what it measured.
//
// Every line has
//     format     of this file; a file of another format is refused
//     kind       "row", what was measured; "cut", what a budget left out; "error", what went wrong
//     library, settings, device, name, length     the key of the line
// and a row has forward_ms, backward_ms and peak_bytes, too. The bytes are null where they are unknown,
// backward's time where another library has no backward.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/types.h"

namespace weft::bench {

using Row = nlohmann::ordered_json;

constexpr int results_format = 1;

// What a line is of. Two lines with the same key are the same measurement.
struct Key {
  std::string library, settings, device, name;
  i64 length = 0;

  friend bool operator==(const Key&, const Key&) = default;
};
Key key_of(const Row& row);
// What the row's length counts: 'S' keys, of which each of `queries` sees all; 'N' both.
char letter_of_length(const Row& row);

class Results {
 public:
  Results() = default;  // rows that no file keeps
  // Reads what an earlier run left. Throws where the file cannot be opened, has another format, is
  // damaged, or another run is writing to it. A last line that an interruption tore is taken off.
  explicit Results(const std::string& path);
  ~Results();
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  const std::vector<Row>& lines() const { return lines_; }
  bool torn() const { return torn_; }     // whether a torn line was taken off
  const Row* find(const Key& key) const;  // the row with this key; null without one

  // Adds a line. One that is known (but for the times of its measurement) is left out. Throws where
  // the disk does not take it, and leaves whole lines only.
  void add(const Row& line);

 private:
  std::string path_;
  int descriptor_ = -1;
  bool torn_ = false;
  std::vector<Row> lines_;
};

// The last row for each name and length with this library, these settings and this device, in the
// order in which names first came, then by length.
std::vector<Row> rows_of_run(const std::vector<Row>& lines, const std::string& library,
                             const std::string& settings, const std::string& device);

// All of them as comma-separated values under a header of their keys.
std::string csv(const std::vector<Row>& rows);

}  // namespace weft::bench
