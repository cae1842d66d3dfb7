#include "apps/training/metrics_views.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>

#include "nn/file.h"
#include "runtime/error.h"

namespace weft {
namespace {

constexpr const char *first_part = "events.out.tfevents.", *last_part = ".weft";

double now() {  // in seconds since 1970
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// With microseconds: a training can be stopped and resumed within a second.
std::string event_file(const std::string& folder, double time) {
  return fmt::format("{}/{}{:017.6f}{}", folder, first_part, time, last_part);
}

// Older logs of charlm have the key "epoch" for "round".
Json with_round(const Json& line, const std::vector<std::string>& columns) {
  Json::Object members = line.members();
  for (auto& [name, value] : members) {
    if (name == "epoch" && std::ranges::count(columns, "epoch") == 0) name = "round";
  }
  return members;
}

}  // namespace

MetricsViews::MetricsViews(const std::string& folder, std::vector<std::string> columns)
    : columns_(std::move(columns)),
      csv_(folder + "/metrics.csv", columns_),
      events_(event_file(folder, now()), now()) {
  const std::string log = folder + "/metrics.jsonl";
  std::istringstream lines(read_file(log));
  i64 number = 0;
  for (std::string text; std::getline(lines, text);) {
    ++number;
    const std::optional<Json> line = parse_json(text);
    require(line.has_value() && line->is<Json::Object>(), "{}: line {} is not a JSON object", log,
            number);
    tabulate(with_round(*line, columns_));
  }
}

void MetricsViews::add(const Json& line) {
  tabulate(line);
  const std::vector<Scalar> scalars = scalars_of(line);
  if (!scalars.empty()) events_.add(now(), step_, scalars);
}

void MetricsViews::add_text(const std::string& tag, const std::string& text) {
  events_.add_text(now(), step_, tag, text);
}

void MetricsViews::tabulate(const Json& line) {
  csv_.add(line);
  if (const Json* const step = line.find("step"); step != nullptr) step->take(step_);
}

void remove_event_files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(first_part) && name.ends_with(last_part)) files.push_back(entry.path());
  }
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    std::filesystem::remove(file, error);
    require(!error, "{}: cannot be removed: {}", file.string(), error.message());
  }
}

}  // namespace weft
