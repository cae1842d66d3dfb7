// The folder that a training run writes to:
//
//     step-…              checkpoints that a training can go on from (saved_training.h)
//     best.safetensors    the model of the best one, and last.safetensors that of the last: further
//                         names (hard links) of the files there
//     metrics.jsonl       the log, one JSON object a line, and what follows it (metrics_views.h)
//     result.json         once the training is over: what its test gave
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/command_line/json.h"
#include "apps/training/metrics_views.h"
#include "apps/training/saved_training.h"

namespace weft {

enum class Start { fresh, replace, resume };

// Throws where a folder holds a run.
void require_no_run(const std::string& path);

class RunFolder {
 public:
  RunFolder() = default;  // keeps nothing
  // Makes the folder and holds it until the end: a second process that wants it gets an error. One
  // that holds another run is an error too, unless Start::replace removes that run's files, or
  // Start::resume reads its last complete checkpoint, which must be there. `keep`: checkpoints to
  // keep, besides that of the best model.
  RunFolder(const std::string& path, Start start, i64 keep = 2);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  bool keeps() const { return folder_ >= 0; }
  const std::string& path() const { return path_; }
  // What the run goes on from, until it does; null for a new run.
  const SavedTraining* resumed() const { return resumed_ ? &*resumed_ : nullptr; }
  // Makes the folder what it was at that checkpoint (what came after it, in the log too, is
  // removed) and hands it over. For a new run nothing is done.
  std::optional<SavedTraining> go_on();

  // What the log's lines may hold: from now on they go to the views, too.
  void show_columns(std::vector<std::string> columns) { columns_ = std::move(columns); }
  // Writes a checkpoint, with the log up to here; one that has its name already is left as it is.
  void save(SavedTraining saved);
  void log(const Json& line);
  // Text for the views that can show it, TensorBoard's; a line of the log must follow or be there.
  void show_text(const std::string& tag, const std::string& text);
  void print_log() { prints_ = true; }  // its lines also go to standard output
  // The training that ended after this step is over, with this result.
  void finish(i64 step, const Json& result);
  // That result; null where there is none of this step.
  Json result(i64 step) const;

 private:
  void open_log();
  void cut_log(i64 bytes) const;
  void link_model(const std::string& checkpoint, const char* name) const;

  std::string path_;
  int folder_ = -1, log_ = -1;  // descriptors
  i64 keep_ = 0;
  bool prints_ = false;
  std::optional<SavedTraining> resumed_;
  std::string last_;                   // the name of the last checkpoint
  std::vector<std::string> columns_;   // empty: there are no views
  std::optional<MetricsViews> views_;  // begun with the first line
  std::vector<std::pair<std::string, std::string>> texts_;  // tags and texts for them
};

// `path` itself, or, where it is a folder, its best.safetensors.
std::string checkpoint_file(const std::string& path);

}  // namespace weft
