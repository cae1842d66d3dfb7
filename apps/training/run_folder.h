// The folder of a training run:
//
//     step-…              checkpoints to resume from (saved_training.h)
//     best.safetensors    the model of the best checkpoint, and last.safetensors that of the last:
//                         hard links to the files in step-…
//     metrics.jsonl       the log, one JSON object per line; other formats: metrics_views.h
//     result.json         the test results, when the training is complete, and the commit of the
//                         program that completed it
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

// Throws if the folder holds a run.
void require_no_run(const std::string& path);

class RunFolder {
 public:
  RunFolder() = default;  // writes nothing
  // Creates and locks the folder; throws if another process has locked it. Throws for a folder with
  // a run, unless `start` is Start::replace, which removes that run's files, or Start::resume,
  // which reads its last complete checkpoint and throws if there is none. `keep`: number of
  // checkpoints to keep, besides that of the best model.
  RunFolder(const std::string& path, Start start, i64 keep = 2);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  bool keeps() const { return folder_ >= 0; }
  const std::string& path() const { return path_; }
  // The checkpoint to resume from, until go_on(); null for a new run.
  const SavedTraining* resumed() const { return resumed_ ? &*resumed_ : nullptr; }
  // Restores the folder to that checkpoint: removes later files and lines of the log. Call it when
  // nothing can refuse the checkpoint any more. Does nothing for a new run.
  void go_on();

  // Declares the keys of the log's lines; from now on lines also go to the views.
  void show_columns(std::vector<std::string> columns) { columns_ = std::move(columns); }
  // Flushes the log and writes a checkpoint; does nothing if one of this name exists.
  void save(SavedTraining saved);
  void log(const Json& line);
  // Shows text in TensorBoard. The log must have a line, before or after this call.
  void show_text(const std::string& tag, const std::string& text);
  void print_log() { prints_ = true; }  // prints the log's lines to standard output too
  // Records that the training is complete after this step, with this result.
  void finish(i64 step, const Json& result);
  // The recorded result; null if there is none for this step.
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
  std::vector<std::string> columns_;   // empty: no views
  std::optional<MetricsViews> views_;  // created with the first line
  std::vector<std::pair<std::string, std::string>> texts_;  // tags and texts for the views
};

// `path`, or, if it is a folder, its best.safetensors.
std::string checkpoint_file(const std::string& path);

}  // namespace weft
