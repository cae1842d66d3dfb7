// Checks of a program's output.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

#include "runtime/error.h"

namespace weft {

// Flushes standard output; throws if it could not be written.
inline void flush_output() {
  require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0,
          "standard output could not be written");
}

// Throws if the folder of a file to be written does not exist.
inline void require_folder_for(const std::string& file) {
  require(std::filesystem::is_directory(std::filesystem::absolute(file).parent_path()),
          "{}: its folder does not exist", file);
}

}  // namespace weft
