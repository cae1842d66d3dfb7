// JSON objects, one a line: what programs print and logs hold.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace weft {

inline std::vector<nlohmann::json> lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(stream, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

}  // namespace weft
