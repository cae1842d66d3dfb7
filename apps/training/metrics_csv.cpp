#include "apps/training/metrics_csv.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/error.h"

namespace weft {
namespace {

std::string quoted_where_needed(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string cell_of(const Json& value) {
  if (std::string word; value.take(word)) return quoted_where_needed(word);
  const std::string text = value.text();
  return text == "null" ? "nan" : text;
}

}  // namespace

std::vector<std::string> metric_columns(const std::string& round, const std::string& score,
                                        const std::vector<std::string>& own) {
  std::vector<std::string> columns = {"kind", "step", round, "tokens", "loss", score};
  columns.insert(columns.end(), own.begin(), own.end());
  columns.insert(columns.end(), {"train_loss", "train_" + score, "best", "tokens_per_second",
                                 "learning_rate", "gradient_norm", "elapsed", "remaining", "what"});
  return columns;
}

MetricsCsv::MetricsCsv(const std::string& path, std::vector<std::string> columns)
    : path_(path), columns_(std::move(columns)) {
  check_place(path);
  file_.open(path);
  require(file_.is_open(), "{}: cannot be written: {}", path, std::strerror(errno));
  write(columns_);
}

void MetricsCsv::check_place(const std::string& path) {
  std::error_code error;
  require(!std::filesystem::is_fifo(path, error), "{}: wanted a file, got a pipe; remove it", path);
}

void MetricsCsv::add(const Json& line) {
  std::vector<std::string> cells(columns_.size());
  for (const auto& [key, value] : line.members()) {
    const auto place = std::find(columns_.begin(), columns_.end(), key);
    require(place != columns_.end(), "{}: there is no column '{}'", path_, key);
    cells[static_cast<std::size_t>(place - columns_.begin())] = cell_of(value);
  }
  write(cells);
}

void MetricsCsv::write(const std::vector<std::string>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) file_ << (i > 0 ? "," : "") << cells[i];
  file_ << std::endl;
  require(file_.good(), "{}: writing failed: {}", path_, std::strerror(errno));
}

}  // namespace weft
