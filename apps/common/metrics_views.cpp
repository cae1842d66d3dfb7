#include "apps/common/metrics_views.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>

#include <nlohmann/json.hpp>

#include "nn/file.h"
#include "runtime/error.h"

namespace weft {
namespace {

constexpr const char *first_part = "events.out.tfevents.", *last_part = ".weft";

double now() {  // in seconds since 1970
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// To the microsecond: a training may be stopped and go on within a second.
std::string event_file(const std::string& folder, double time) {
  return fmt::format("{}/{}{:017.6f}{}", folder, first_part, time, last_part);
}

// charlm's older logs call a round an epoch.
nlohmann::ordered_json with_round(nlohmann::ordered_json line,
                                  const std::vector<std::string>& columns) {
  if (line.contains("epoch") && std::ranges::count(columns, "epoch") == 0) {
    line["round"] = line["epoch"];
    line.erase("epoch");
  }
  return line;
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
    auto line = nlohmann::ordered_json::parse(text, nullptr, false);
    require(line.is_object(), "{}: line {} is no JSON object", log, number);
    tabulate(with_round(std::move(line), columns_));
  }
}

void MetricsViews::add(const nlohmann::ordered_json& line) {
  tabulate(line);
  const std::vector<Scalar> scalars = scalars_of(line);
  if (!scalars.empty()) events_.add(now(), step_, scalars);
}

void MetricsViews::add_text(const std::string& tag, const std::string& text) {
  events_.add_text(now(), step_, tag, text);
}

void MetricsViews::tabulate(const nlohmann::ordered_json& line) {
  csv_.add(line);
  const auto step = line.find("step");
  if (step != line.end() && step->is_number_integer()) step_ = step->get<i64>();
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
