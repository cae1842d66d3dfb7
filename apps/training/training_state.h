// The state of the training loop besides weights and optimizer, as saved in a checkpoint.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "apps/training/train.h"

namespace weft {

struct TrainingState {
  TrainResult result;
  double least = std::numeric_limits<double>::infinity();  // smallest criterion so far
  i64 failures = 0;                                        // consecutive steps not finite
  Measure recent{0, 0};                                    // sums since the last report
  i64 recent_steps = 0;
  Measure round{0, 0};  // sums since the last validation
  i64 round_steps = 0;
  std::string best;  // name of the checkpoint with the best model
};

// Convert the state to the metadata of state.safetensors and back; numbers round-trip exactly.
// `notes` may be null. With `look_for_anomaly` the state of a diverged training is accepted too.
// Errors begin with `source`.
std::map<std::string, std::string> to_metadata(const TrainingState& state,
                                               const std::map<std::string, double>* notes);
TrainingState training_state(const SavedTraining& saved, std::map<std::string, double>* notes,
                             bool look_for_anomaly, const std::string& source);

// Throws if the checkpoint belongs to another task, for example with other data.
void check_same_task(const SavedTraining& saved, const Task& task, const std::string& source);

}  // namespace weft
