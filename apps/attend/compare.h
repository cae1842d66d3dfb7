// Several mechanisms on the tensors of one file, side by side.
#pragma once

#include "apps/attend/call.h"

namespace weft {

// What one of them took; the first one's output is what the others' errors are relative to.
struct Compared {
  std::string specification;
  std::string refused = {};  // why it did not run; the rest is 0 then
  double error = 0;          // |out − first| / |first|, of Frobenius norms
  double milliseconds = 0;   // of one forward pass, the median
  double peak_bytes = 0;     // above the inputs, the output included
};

// `attend --compare`: measures, prints the table, and draws it where --out names a picture. Returns
// the exit status; throws where not even the first mechanism runs.
int compare(const AttendCommand& command);

// The table as a picture: bars for error, time and memory.
void draw_comparison(const std::vector<Compared>& rows, const std::string& title,
                     const std::string& path);

}  // namespace weft
