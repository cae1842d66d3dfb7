// Several mechanisms compared on the tensors of one file.
#pragma once

#include "apps/attend/call.h"

namespace weft {

// The measurements of one mechanism. Errors are relative to the output of the first one.
struct Compared {
  std::string specification;
  std::string refused = {};  // why it did not run; all other fields are 0 then
  double error = 0;          // |out − first| / |first|, of Frobenius norms
  double milliseconds = 0;   // median time of a forward pass
  double peak_bytes = 0;     // peak memory without the inputs, with the output
};

// `attend --compare`: measures, prints the table and, with --out, draws it. Returns the exit
// status; throws if the first mechanism cannot run.
int compare(const AttendCommand& command);

// The table as a picture: bars for error, time and memory.
void draw_comparison(const std::vector<Compared>& rows, const std::string& title,
                     const std::string& path);

}  // namespace weft
