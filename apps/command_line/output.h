// Where programs say and write what they found.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

#include "runtime/error.h"

namespace weft {

// Throws where what was printed could not be written.
inline void flush_output() {
  require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0,
          "standard output could not be written");
}

// Throws where the folder that a file is to be written into is not there.
inline void require_folder_for(const std::string& file) {
  require(std::filesystem::is_directory(std::filesystem::absolute(file).parent_path()),
          "{}: there is no folder for it", file);
}

}  // namespace weft
