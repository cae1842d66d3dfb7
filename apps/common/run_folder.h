// The folder that a training run writes to: best.safetensors, last.safetensors, and metrics.jsonl
// with one JSON object a line; and what follows that log (metrics_views.h).
#pragma once

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "apps/common/metrics_views.h"
#include "nn/checkpoint.h"

namespace weft {

class RunFolder {
 public:
  RunFolder() = default;  // keeps nothing
  // Makes the folder and holds it until the end: a second process that wants it gets an error. One
  // that holds another run is an error too, unless `force`, which removes that run's files.
  RunFolder(const std::string& path, bool force);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  bool keeps() const { return descriptor_ >= 0; }
  void save_best(const Checkpoint& checkpoint) const { save(checkpoint, "best.safetensors"); }
  void save_last(const Checkpoint& checkpoint) const { save(checkpoint, "last.safetensors"); }
  // What the log's lines may hold: from now on they go to the views, too.
  void show_columns(std::vector<std::string> columns) { columns_ = std::move(columns); }
  void log(const nlohmann::ordered_json& line);

 private:
  void save(const Checkpoint& checkpoint, const char* name) const;

  std::string path_;
  int descriptor_ = -1;
  std::ofstream metrics_;
  std::vector<std::string> columns_;   // empty: there are no views
  std::optional<MetricsViews> views_;  // begun with the first line
};

// `path` itself, or, where it is a folder, its best.safetensors.
std::string checkpoint_file(const std::string& path);

}  // namespace weft
