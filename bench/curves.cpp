#include "bench/curves.h"

#include <algorithm>
#include <optional>

#include <fmt/core.h>

#include "bench/passes.h"

namespace weft::bench {
namespace {

constexpr int passes_of_row = 4;  // one to warm up and three to measure

class CurveRun {
 public:
  CurveRun(const Run& run, Results& results)
      : run_(run), results_(results), start_(run.clock()), states_(run.entrants.size()) {
    for (std::size_t i = 0; i < run.entrants.size(); ++i) {
      for (const i64 length : run.entrants[i].lengths) steps_.push_back({length, i});
    }
    std::stable_sort(steps_.begin(), steps_.end(),
                     [](const Step& a, const Step& b) { return a.length < b.length; });
  }

  Outcome run() {
    for (at_ = 0; at_ < steps_.size() && !outcome_.interrupted; ++at_) {
      if (run_.stop()) {
        outcome_.interrupted = true;
      } else if (!states_[steps_[at_].entrant].over) {
        take(steps_[at_]);
      }
    }
    return outcome_;
  }

 private:
  struct Step {
    i64 length;
    std::size_t entrant;
  };
  struct State {
    bool over = false;        // longer lengths are skipped
    i64 length = 0;           // the last one measured; 0: none
    double seconds = 0;       // of a forward and backward there
  };

  Row line(const Step& step, const char* kind) const {
    Row line = run_.identity;
    line["kind"] = kind;
    line["name"] = run_.entrants[step.entrant].name;
    line["length"] = step.length;
    return line;
  }

  void add(const Row& line) {
    results_.add(line);
    run_.added(line);
  }

  // Seconds of a forward and backward, extrapolated from the length before; 0: unknown.
  double predicted(const Step& step) const {
    const State& state = states_[step.entrant];
    if (state.length == 0) return 0;
    const auto& expected = run_.entrants[step.entrant].expected;
    const double work = expected(step.length).operations / expected(state.length).operations;
    return state.seconds * std::max(work, double(step.length) / double(state.length));
  }

  double predicted_row(const Step& step) const {
    return std::max(run_.seconds, passes_of_row * predicted(step));
  }

  // The budget that excludes this step, if any.
  std::optional<std::string> beyond(const Step& step) const {
    const Budgets& budgets = run_.budgets;
    const Expected expected = run_.entrants[step.entrant].expected(step.length);
    const double bytes = expected.peak_bytes + expected.held_bytes;
    if (budgets.memory_bytes > 0 && bytes > budgets.memory_bytes) {
      return fmt::format("needs about {:.1f} GiB, more than the {:.1f} GiB of --memory",
                         bytes / (1 << 30), budgets.memory_bytes / (1 << 30));
    }
    const double row = predicted_row(step);
    if (budgets.row_seconds > 0 && row > budgets.row_seconds) {
      return fmt::format("needs about {:.1f} s, more than the {:.1f} s of --row-seconds", row,
                         budgets.row_seconds);
    }
    if (budgets.run_seconds > 0 && run_.clock() - start_ + row > budgets.run_seconds) {
      return fmt::format("would exceed the {:.0f} s of --run-seconds", budgets.run_seconds);
    }
    return {};
  }

  // Seconds for this step and the later ones.
  double left() const {
    double sum = 0;
    for (std::size_t i = at_; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      const double row = predicted_row(step);
      const bool cut = states_[step.entrant].over ||
                       (run_.budgets.row_seconds > 0 && row > run_.budgets.row_seconds);
      if (!cut && results_.find(key_of(line(step, "row"))) == nullptr) sum += row;
    }
    const double rest = run_.budgets.run_seconds - (run_.clock() - start_);
    return run_.budgets.run_seconds > 0 ? std::min(sum, rest) : sum;
  }

  void take(const Step& step) {
    State& state = states_[step.entrant];
    Row row = line(step, "row");
    if (const Row* const known = results_.find(key_of(row))) {
      ++outcome_.kept;
      remember(state, *known);
      return;
    }
    if (const auto reason = beyond(step)) {
      state.over = true;
      ++outcome_.cut;
      row["kind"] = "cut";
      row["reason"] = *reason;
      return add(row);
    }
    const Entrant& entrant = run_.entrants[step.entrant];
    run_.begins(entrant.name, step.length, int(at_) + 1, int(steps_.size()), left());
    try {
      row.update(entrant.measure(step.length));
      ++outcome_.measured;
      remember(state, row);
    } catch (const Interrupted&) {
      outcome_.interrupted = true;
      return;
    } catch (const std::exception& error) {
      ++outcome_.failed;
      row["kind"] = "error";
      row["reason"] = error.what();
    }
    add(row);
  }

  static void remember(State& state, const Row& row) {
    state.length = row["length"];
    const Row& backward = row["backward_ms"];
    const double ms = row["forward_ms"].get<double>();
    state.seconds = (ms + (backward.is_null() ? 0 : backward.get<double>())) / 1e3;
  }

  const Run& run_;
  Results& results_;
  const double start_;
  std::vector<State> states_;
  std::vector<Step> steps_;
  std::size_t at_ = 0;
  Outcome outcome_;
};

}  // namespace

Outcome run_curves(const Run& run, Results& results) { return CurveRun(run, results).run(); }

}  // namespace weft::bench
