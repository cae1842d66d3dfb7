// Standard output, which a full disk may stand behind.
#pragma once

#include <cstdio>

#include "runtime/error.h"

namespace weft {

// Throws where what was printed could not be written.
inline void flush_output() {
  require(std::fflush(stdout) == 0 && std::ferror(stdout) == 0,
          "standard output could not be written");
}

}  // namespace weft
