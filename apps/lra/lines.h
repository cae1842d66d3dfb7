// The lines of text files.
#pragma once

#include <functional>
#include <string>

namespace weft::lra {

// Calls f(line, place) for each line, without its end, "\n" or "\r\n"; `place` is "FILE: line N".
// Throws if the file cannot be read, which `wanted` says what it should be.
void each_line(const std::string& file, const std::string& wanted,
               const std::function<void(const std::string& line, const std::string& place)>& f);

}  // namespace weft::lra
