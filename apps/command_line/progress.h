// What a running program says: one line that is redrawn on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/types.h"

namespace weft {

class Progress {
 public:
  explicit Progress(bool quiet = false);
  ~Progress();  // ends a line that is being redrawn
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // On a terminal: redraws the current line, ten times a second at most. Elsewhere: nothing.
  void update(const std::string& line);
  // A line for those who have no terminal: printed there, and on a terminal like update().
  void report(const std::string& line);
  // A line that stays, everywhere.
  void print(const std::string& line);
  // A line on stderr, "note: …": what the run will do and its settings may not mean.
  void note(const std::string& line);

  bool wants_update() const;  // whether update() would draw now
  void clear();  // takes back a line that is being redrawn

 private:
  void redraw(const std::string& line);

  bool quiet_, terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// "0:07", "12:40", "3:05:09".
std::string duration(double seconds);
// "40 seconds", "12 minutes", "14.6 hours", "3.2 days".
std::string rough_duration(double seconds);
// "812", "48.2k", "1.31M".
std::string short_number(double value);
// "1,234,567".
std::string grouped(i64 value);

// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Notes once how long a training will take, where that is hours, by some of its steps: those of a
// second, or ten. The first is not counted: it makes what later ones find there.
class TimeEstimate {
 public:
  // After each step, of so many in all.
  void count(i64 step, i64 steps, Progress& progress);
  // What follows is no step.
  void restart() { from_ = -1; }

 private:
  bool noted_ = false;
  i64 from_ = -1;           // the step that is not counted; -1: the next one
  Stopwatch watch_;         // since then
};

}  // namespace weft
