#include "bench/results.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "nn/file.h"
#include "runtime/error.h"

namespace weft::bench {
namespace {

std::string reason() { return std::strerror(errno); }

bool is_text(const Row& line, const char* key) {
  return line.contains(key) && line[key].is_string();
}

// Throws unless the line is one of this format.
void check(const std::string& path, std::size_t number, const Row& line) {
  require(line.is_object() && line.contains("format") && line["format"].is_number_integer(),
          "{}:{}: wanted a row of weft's attention benchmark; name another folder", path, number);
  require(line["format"] == results_format,
          "{}:{}: rows of format {}, and this weft writes format {}; move the file away or name "
          "another folder",
          path, number, line["format"].dump(), results_format);
  bool whole = is_text(line, "kind");
  for (const char* key : {"library", "settings", "device", "processor", "name"}) {
    whole = whole && is_text(line, key);
  }
  whole =
      whole && line.contains("length") && line["length"].is_number_integer() && line["length"] > 0;
  if (whole && line["kind"] == "row") {
    for (const char* key : {"forward_ms", "backward_ms"}) {
      const bool may_lack = key == std::string_view("backward_ms");
      whole = whole && line.contains(key) &&
              ((line[key].is_number() && line[key] > 0) || (may_lack && line[key].is_null()));
    }
    whole = whole && line.contains("peak_bytes") &&
            (line["peak_bytes"].is_number() || line["peak_bytes"].is_null());
  }
  require(whole, "{}:{}: a row of format {} that lacks fields: {:.60}…", path, number,
          results_format, line.dump());
}

}  // namespace

Key key_of(const Row& row) {
  return {row["library"],   row["settings"], row["device"],
          row["processor"], row["name"],     row["length"]};
}

char letter_of_length(const Row& row) { return row.value("queries", 0) > 0 ? 'S' : 'N'; }

Results::Results(const std::string& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(descriptor_ >= 0, "{}: cannot be opened: {}", path, reason());
  try {
    require(::flock(descriptor_, LOCK_EX | LOCK_NB) == 0,
            "{}: another run is writing to it; wait for it or name another folder", path);
    const std::string text = read_file(path);
    std::size_t begin = 0, number = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      ++number;
      const Row line = Row::parse(text.begin() + std::ptrdiff_t(begin),
                                  text.begin() + std::ptrdiff_t(end), nullptr, false);
      require(!line.is_discarded(), "{}:{}: is not JSON; name another folder", path, number);
      check(path, number, line);
      lines_.push_back(line);
    }
    torn_ = begin < text.size();
    if (torn_) {
      require(::ftruncate(descriptor_, static_cast<off_t>(begin)) == 0,
              "{}: cannot remove its incomplete last line: {}", path, reason());
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

Results::~Results() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

const Row* Results::find(const Key& key) const {
  const auto found = std::find_if(lines_.rbegin(), lines_.rend(), [&](const Row& line) {
    return line["kind"] == "row" && key_of(line) == key;
  });
  return found == lines_.rend() ? nullptr : &*found;
}

void Results::add(const Row& line) {
  const auto last = std::find_if(lines_.rbegin(), lines_.rend(),
                                 [&](const Row& other) { return key_of(other) == key_of(line); });
  const auto reason_of = [](const Row& row) { return row.value("reason", ""); };
  if (last != lines_.rend() && (*last)["kind"] == line["kind"] &&
      reason_of(*last) == reason_of(line)) {
    return;
  }
  if (descriptor_ >= 0) {
    const std::string text = line.dump() + "\n";
    const off_t end = ::lseek(descriptor_, 0, SEEK_END);
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t wrote = ::write(descriptor_, text.data() + done, text.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) {
        const std::string why = reason();
        const bool whole = ::ftruncate(descriptor_, end) == 0;
        fail(
            "{}: cannot be written: {}; {} rows are in it; make room and run the same command "
            "again{}",
            path_, why, lines_.size(), whole ? "" : ", which removes the incomplete line");
      }
      done += static_cast<std::size_t>(wrote);
    }
  }
  lines_.push_back(line);
}

bool is_of_run(const Row& line, const Row& identity) {
  return std::ranges::all_of(std::array{"library", "settings", "device", "processor"},
                             [&](const char* part) { return line[part] == identity[part]; });
}

std::vector<Row> rows_of_run(const std::vector<Row>& lines, const Row& identity) {
  std::vector<std::string> names;
  std::vector<Row> rows;
  const auto place_of = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  for (const Row& line : lines) {
    if (line["kind"] != "row" || !is_of_run(line, identity)) continue;
    const Key key = key_of(line);
    if (place_of(key.name) == std::ptrdiff_t(names.size())) names.push_back(key.name);
    std::erase_if(rows, [&](const Row& row) { return key_of(row) == key; });
    rows.push_back(line);
  }
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    const auto of_a = place_of(a["name"]), of_b = place_of(b["name"]);
    return of_a != of_b ? of_a < of_b : a["length"] < b["length"];
  });
  return rows;
}

std::string csv(const std::vector<Row>& rows) {
  std::vector<std::string> columns;
  for (const Row& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (std::find(columns.begin(), columns.end(), key) == columns.end()) columns.push_back(key);
    }
  }
  std::string text;
  const auto add = [&](const std::string& cell, bool last) {
    const bool quote = cell.find_first_of(",\"\n") != std::string::npos;
    text += quote ? "\"" : "";
    for (const char c : cell) text += c == '"' ? std::string("\"\"") : std::string(1, c);
    text += quote ? "\"" : "";
    text += last ? "\n" : ",";
  };
  for (const std::string& column : columns) add(column, &column == &columns.back());
  for (const Row& row : rows) {
    for (const std::string& column : columns) {
      const Row value = row.contains(column) ? row[column] : Row();
      const std::string cell = value.is_null()     ? ""
                               : value.is_string() ? value.get<std::string>()
                                                   : value.dump();
      add(cell, &column == &columns.back());
    }
  }
  return text;
}

}  // namespace weft::bench
