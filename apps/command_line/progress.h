// Progress output: on a terminal one line that is redrawn, elsewhere plain lines. Several ranks
// have no terminal: mpirun shows its own to them wherever their output goes.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/types.h"

namespace weft {

class Progress {
 public:
  explicit Progress(bool quiet = false);
  ~Progress();  // erases the line that is being redrawn
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // On a terminal: redraws the current line, at most ten times a second. Elsewhere: does nothing.
  void update(const std::string& line);
  // Without a terminal: prints the line. On a terminal: redraws it, at any rate.
  void report(const std::string& line);
  // Prints a permanent line, on a terminal and elsewhere.
  void print(const std::string& line);
  // Prints "note: …" to stderr: a consequence of the settings that the user may not intend.
  void note(const std::string& line);

  bool wants_update() const;  // whether update() would draw now
  void clear();               // erases the line that is being redrawn

 private:
  void redraw(const std::string& line);

  bool quiet_, terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// The fields of the line, which two spaces separate, that are whole within the width.
std::string fields_within(const std::string& line, std::size_t width);
// "0:07", "12:40", "3:05:09".
std::string duration(double seconds);
// "40 seconds", "12 minutes", "14.6 hours", "3.2 days".
std::string rough_duration(double seconds);
// "812", "48.2k", "1.31M".
std::string short_number(double value);
// "1,234,567".
std::string grouped(i64 value);

// Measures the seconds since its construction.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Prints one note with the estimated time of a training that will take hours. Measures the steps of
// one second, or ten steps, after the first, which also allocates the memory that the others reuse.
class TimeEstimate {
 public:
  // Call after each step; `steps` is the total number.
  void count(i64 step, i64 steps, Progress& progress);
  // Call before work that is not a step, such as validation.
  void restart() { from_ = -1; }

 private:
  bool noted_ = false;
  i64 from_ = -1;    // the step after which measuring began; -1: begin after the next
  Stopwatch watch_;  // started then
};

}  // namespace weft
