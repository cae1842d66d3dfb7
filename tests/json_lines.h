// JSON objects, one a line: what programs print and the logs of runs hold.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nn/file.h"

namespace weft {

inline std::vector<nlohmann::json> lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(stream, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

// The lines of one kind in the log of a run, which is a folder.
inline std::vector<nlohmann::json> logged(const std::string& run, const std::string& kind) {
  std::vector<nlohmann::json> found;
  for (const nlohmann::json& line : lines(read_file(run + "/metrics.jsonl"))) {
    if (line["kind"] == kind) found.push_back(line);
  }
  return found;
}

// A figure of each of them.
inline std::vector<double> logged(const std::string& run, const std::string& kind,
                                  const std::string& figure) {
  std::vector<double> found;
  for (const nlohmann::json& line : logged(run, kind)) found.push_back(line[figure]);
  return found;
}

}  // namespace weft
