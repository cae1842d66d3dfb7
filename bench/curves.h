// A run of the attention benchmark: every entrant at every length, shortest first, within budgets;
// measurements of an earlier run are read from its file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/results.h"
#include "bench/subject.h"

namespace weft::bench {

// A subject that is measured at several lengths: a mechanism, or another library's attention.
struct Entrant {
  std::string name;
  std::vector<i64> lengths;  // ascending
  std::function<Expected(i64 length)> expected;
  // A row without its key: forward_ms, backward_ms, peak_bytes and others. May throw: Interrupted
  // if it was asked to stop, another exception if this length cannot be measured.
  std::function<Row(i64 length)> measure;
};

// 0: no limit. A step that would exceed one is skipped, and so are the longer lengths of that
// entrant.
struct Budgets {
  double row_seconds = 0;  // of one row: a warm-up and three runs, by the time of the length before
  double memory_bytes = 0;  // of one row, by the fact sheet, before it is tried
  double run_seconds = 0;   // of all
};

struct Run {
  Row identity;  // the beginning of every line of this run: format, library, settings, device, …
  std::vector<Entrant> entrants = {};
  Budgets budgets;
  double seconds = 1;  // least time of a row, for the estimate of the remaining time
  Clock clock = steady_seconds;
  std::function<bool()> stop = [] { return false; };
  // Called before a row is measured, with the number of rows and the estimated remaining seconds.
  std::function<void(const std::string& name, i64 length, int number, int count, double left)>
      begins = [](auto&&...) {};
  // Called when a line was added: a row, a cut or an error.
  std::function<void(const Row&)> added = [](const Row&) {};
};

struct Outcome {
  int measured = 0, kept = 0, cut = 0, failed = 0;  // kept: from an earlier run
  bool interrupted = false;
};

Outcome run_curves(const Run& run, Results& results);

}  // namespace weft::bench
