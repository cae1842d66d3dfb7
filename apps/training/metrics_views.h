// The log of a run for other programs: metrics.csv (metrics_csv.h), and an event file for
// TensorBoard (event_file.h), events.out.tfevents.SECONDS.weft by the time when it was begun.
//
// metrics.jsonl is what both follow. Where a training goes on, the table is made anew from the
// lines that are there; the events go on in a file of their own, and TensorBoard drops what an
// earlier file has of later steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/training/event_file.h"
#include "apps/training/metrics_csv.h"

namespace weft {

class MetricsViews {
 public:
  // For the run in `folder`, whose metrics.jsonl is there.
  MetricsViews(const std::string& folder, std::vector<std::string> columns);
  // A line that the log has got. One without a step counts to the last step that there was.
  void add(const Json& line);
  // For TensorBoard alone: `text` is UTF-8 and counts to the last step that there was.
  void add_text(const std::string& tag, const std::string& text);

 private:
  void tabulate(const Json& line);

  std::vector<std::string> columns_;
  MetricsCsv csv_;
  EventFile events_;
  i64 step_ = 0;
};

// Removes the event files that runs left in the folder.
void remove_event_files(const std::string& folder);

}  // namespace weft
