// All that a training needs to go on as if it had never stopped, in a folder of its own:
//
//     model.safetensors   the weights, with the configuration
//     state.safetensors   the optimizer's state, and the numbers of the loop
//     manifest.json       sizes and checksums of both, which checkpoint has the best model, and how
//                         far the log and the clock were
//
// Random numbers, batches and learning rates are functions of the seed and the step, and no
// mechanism has a memory of its own: there is nothing else. Both .safetensors files are functions
// of the configuration, the data and the step; what differs from run to run is in the manifest.
//
// The manifest is written last, and each file appears whole or not at all (nn/file.h): a folder
// whose manifest is true of its files is a complete checkpoint, and no other one is.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/checkpoint.h"

namespace weft {

struct SavedTraining {
  i64 step = 0;
  bool validated = false;  // the validation after this step is part of it
  Checkpoint model = {}, state = {};
  std::string best = {};       // the name of the checkpoint with the best model; empty: none yet
  Checkpoint best_model = {};  // its model, where this was read
  std::uint64_t log_bytes = 0;
  double elapsed = 0;     // seconds of training
  double unreported = 0;  // those of them since the last report
};

// "step-0000000400", "step-0000000400-validated": in the order of the alphabet as of time.
std::string checkpoint_name(i64 step, bool validated);
inline std::string name_of(const SavedTraining& saved) {
  return checkpoint_name(saved.step, saved.validated);
}
// The checkpoints in `folder`, complete or not, the last one first.
std::vector<std::string> saved_trainings(const std::string& folder);

void write_training(const SavedTraining& saved, const std::string& folder);
// Throws, saying what is wrong, where the checkpoint or the best one it names is not complete.
SavedTraining read_training(const std::string& folder, const std::string& name);
// The last complete one; passed_over(what) says why later ones, if any, are not. Throws where there
// is none.
SavedTraining read_last_training(
    const std::string& folder,
    const std::function<void(const std::string& what)>& passed_over = {});

// Removes all checkpoints but the last `keep` and those with the best models that they name.
void remove_old_trainings(const std::string& folder, i64 keep);
void remove_training(const std::string& folder, const std::string& name);

}  // namespace weft
