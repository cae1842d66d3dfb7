// A run of the attention benchmark: every entrant at every length, shortest first, within budgets;
// what an earlier run measured is taken from its file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/results.h"
#include "bench/subject.h"

namespace weft::bench {

// What is measured at several lengths: a mechanism, or another library's attention.
struct Entrant {
  std::string name;
  std::vector<i64> lengths;  // ascending
  std::function<Expected(i64 length)> expected;
  // A row without its key: forward_ms, backward_ms, peak_bytes and whatever else. May throw:
  // Interrupted where it was asked to stop, another exception where this length cannot be measured.
  std::function<Row(i64 length)> measure;
};

// 0: no limit. What would go beyond one is left out, and so are the longer lengths of that entrant.
struct Budgets {
  double row_seconds = 0;  // of one row: a warm-up and three runs, by the time of the length before
  double memory_bytes = 0;  // of one row, by the fact sheet, before it is tried
  double run_seconds = 0;   // of all
};

struct Run {
  Row identity;  // what every line of this run begins with: format, library, settings, device, …
  std::vector<Entrant> entrants = {};
  Budgets budgets;
  double seconds = 1;  // least time of a row, for the time that is left
  Clock clock = steady_seconds;
  std::function<bool()> stop = [] { return false; };
  // Before a row is measured: how many there are, and the seconds that are about left.
  std::function<void(const std::string& name, i64 length, int number, int count, double left)>
      begins = [](auto&&...) {};
  // A line was added: a row, a cut or an error.
  std::function<void(const Row&)> added = [](const Row&) {};
};

struct Outcome {
  int measured = 0, kept = 0, cut = 0, failed = 0;  // kept: known from an earlier run
  bool interrupted = false;
};

Outcome run_curves(const Run& run, Results& results);

}  // namespace weft::bench
