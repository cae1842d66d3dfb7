#include "apps/training/training_state.h"

#include <algorithm>
#include <charconv>

#include "apps/command_line/output.h"

namespace weft {
namespace {

const std::string best_prefix = "best.", note_prefix = "note.";
constexpr const char *ended = "ended", *not_finite = "not finite";

// Calls f(name, number) for every number of the state.
template <class State, class F>
void each_number(State& s, const F& f) {
  f("skipped", s.result.skipped);
  f("failures", s.failures);
  f("best_epoch", s.result.best_epoch);
  f("best_loss", s.result.best.loss);
  f("best_cross_entropy", s.result.best.cross_entropy);
  f("least", s.least);
  f("recent_loss", s.recent.loss);
  f("recent_cross_entropy", s.recent.cross_entropy);
  f("recent_steps", s.recent_steps);
}

// The same for numbers that older checkpoints lack.
template <class State, class F>
void each_later_number(State& s, const F& f) {
  f("round_loss", s.round.loss);
  f("round_cross_entropy", s.round.cross_entropy);
  f("round_steps", s.round_steps);
}

}  // namespace

std::map<std::string, std::string> to_metadata(const TrainingState& state,
                                               const std::map<std::string, double>* notes) {
  std::map<std::string, std::string> all;
  const auto put = [&](const char* name, auto value) { all[name] = fmt::format("{}", value); };
  each_number(state, put);
  each_later_number(state, put);
  for (const Figure& figure : state.result.best.figures) {
    all[best_prefix + figure.key] = fmt::format("{} {}", figure.value, figure.unit);
  }
  if (notes != nullptr) {
    for (const auto& [key, value] : *notes) all[note_prefix + key] = fmt::format("{}", value);
  }
  if (state.result.ending == Ending::not_finite) all[ended] = not_finite;
  return all;
}

TrainingState training_state(const SavedTraining& saved, std::map<std::string, double>* notes,
                             bool look_for_anomaly, const std::string& source) {
  const auto& all = saved.state.metadata;
  require(!all.contains(ended) || look_for_anomaly,
          "{}: the training diverged at step {} to values that are not finite and cannot be "
          "resumed; --resume --detect-anomaly shows where, or start again with --force, and a "
          "smaller --lr or --clip 1",
          source, saved.step);
  const auto take = [&](const std::string& name, const std::string& text, auto& value) {
    const char* const end = text.data() + text.size();
    require(std::from_chars(text.data(), end, value) == std::from_chars_result{end, std::errc{}},
            "{}: its state has '{}' for the number '{}'", source, text, name);
  };
  TrainingState state;
  state.result.steps = saved.step;
  state.best = saved.best;
  each_number(state, [&](const std::string& name, auto& value) {
    take(name, all.contains(name) ? all.at(name) : "", value);
  });
  each_later_number(state, [&](const std::string& name, auto& value) {
    if (all.contains(name)) take(name, all.at(name), value);
  });
  for (const auto& [name, text] : all) {
    double value = 0;
    if (name.starts_with(best_prefix)) {
      const std::size_t space = std::min(text.find(' '), text.size());  // the unit may be empty
      take(name, text.substr(0, space), value);
      const std::string unit = space == text.size() ? "" : text.substr(space + 1);
      state.result.best.figures.push_back({name.substr(best_prefix.size()), unit, value});
    } else if (name.starts_with(note_prefix) && notes != nullptr) {
      take(name, text, value);
      (*notes)[name.substr(note_prefix.size())] = value;
    }
  }
  return state;
}

void check_same_task(const SavedTraining& saved, const Task& task, const std::string& source) {
  for (const auto& [key, value] : task.metadata) {
    const auto found = saved.model.metadata.find(key);
    const bool same = found != saved.model.metadata.end() && found->second == value;
    if (key == "weft_version" && !same) {
      print_stderr("warning: {}: is of another version than this, {}; the bits may differ", source,
                   value);
    } else if (key != "configuration") {
      require(same,
              "{}: its '{}' is not that of this run; a resumed training must have the data and the "
              "settings that it began with",
              source, key);
    }
  }
}

}  // namespace weft
