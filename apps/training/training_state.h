// What the training loop knows besides weights and optimizer, as a checkpoint keeps it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "apps/training/train.h"

namespace weft {

struct TrainingState {
  TrainResult result;
  double least = std::numeric_limits<double>::infinity();  // of the criterion
  i64 failures = 0;                                        // steps in a row that were not finite
  Measure recent{0, 0};                                    // sums since the last report
  i64 recent_steps = 0;
  Measure round{0, 0};  // the same since the last validation
  i64 round_steps = 0;
  std::string best;  // the name of the checkpoint with the best model
};

// The metadata of state.safetensors, and back; the text of a number gives the same number. `notes`
// may be null; with `look_for_anomaly` also the state of a training that left the finite numbers is
// one to go on from. `source` begins the error where something is missing.
std::map<std::string, std::string> to_metadata(const TrainingState& state,
                                               const std::map<std::string, double>* notes);
TrainingState training_state(const SavedTraining& saved, std::map<std::string, double>* notes,
                             bool look_for_anomaly, const std::string& source);

// Throws where the checkpoint is of another task: of other data, say.
void check_same_task(const SavedTraining& saved, const Task& task, const std::string& source);

}  // namespace weft
