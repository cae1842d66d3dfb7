// The log of a run in other formats: metrics.csv (metrics_csv.h), and an event file for TensorBoard
// (event_file.h), events.out.tfevents.SECONDS.weft, named by its start time.
//
// Both are derived from metrics.jsonl. When a training is resumed, the table is rewritten from the
// existing lines; events go to a new file, and TensorBoard drops later steps of earlier files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/training/event_file.h"
#include "apps/training/metrics_csv.h"

namespace weft {

class MetricsViews {
 public:
  // For the run in `folder`, which must have a metrics.jsonl.
  MetricsViews(const std::string& folder, std::vector<std::string> columns);
  // Adds a line of the log. A line without a step belongs to the last step seen.
  void add(const Json& line);
  // For TensorBoard only. `text` is UTF-8 and belongs to the last step seen.
  void add_text(const std::string& tag, const std::string& text);

 private:
  void tabulate(const Json& line);

  std::vector<std::string> columns_;
  MetricsCsv csv_;
  EventFile events_;
  i64 step_ = 0;
};

// Removes all event files of runs in the folder.
void remove_event_files(const std::string& folder);

}  // namespace weft
