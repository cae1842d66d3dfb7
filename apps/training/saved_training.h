// A checkpoint: everything that a training needs to resume as if it had never stopped, in a folder:
//
//     model.safetensors   the weights, with the configuration
//     state.safetensors   the optimizer's state and the training loop's state
//     manifest.json       sizes and checksums of both, the name of the checkpoint with the best
//                         model, the size of the log, the elapsed time, and what wrote it: version,
//                         commit, instruction set and libraries
//
// Random numbers, batches and learning rates are functions of the seed and the step, and mechanisms
// have no state of their own, so nothing else is needed. Both .safetensors files are functions of
// the configuration, the data and the step; values that differ between runs are in the manifest.
//
// The manifest is written last, and each file is written atomically (nn/file.h). A checkpoint is
// complete exactly if its manifest matches its files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/checkpoint.h"

namespace weft {

struct SavedTraining {
  i64 step = 0;
  bool validated = false;  // includes the validation after this step
  Checkpoint model = {}, state = {};
  std::string best = {};       // name of the checkpoint with the best model; empty: none yet
  Checkpoint best_model = {};  // its model, after reading
  std::uint64_t log_bytes = 0;
  double elapsed = 0;     // seconds of training
  double unreported = 0;  // the part of them since the last report
  std::string computed_by = {};  // after reading: of the program that wrote it; empty: not said
};

// "step-0000000400", "step-0000000400-validated": alphabetical order is the order of time.
std::string checkpoint_name(i64 step, bool validated);
inline std::string name_of(const SavedTraining& saved) {
  return checkpoint_name(saved.step, saved.validated);
}
// The names of the checkpoints in `folder`, complete or not, latest first.
std::vector<std::string> saved_trainings(const std::string& folder);

// What a manifest says, without tensors. Throws, naming `path`, if it is no manifest.
SavedTraining said_by_manifest(const std::string& text, const std::string& path);

void write_training(const SavedTraining& saved, const std::string& folder);
// Reads the last complete checkpoint; calls passed_over(reason) for each later, incomplete one.
// Throws if there is none.
SavedTraining read_last_training(
    const std::string& folder,
    const std::function<void(const std::string& what)>& passed_over = {});

// Removes all checkpoints except the last `keep` and those with the best models that they name.
void remove_old_trainings(const std::string& folder, i64 keep);
void remove_training(const std::string& folder, const std::string& name);

}  // namespace weft
