// Another library's attention, measured in the same run: a program that answers each line it is
// sent by one line of JSON.
//
//     peer → bench   {"peer": "PyTorch", "version": "2.1.0", "forms": [{"attention": 0, "form":
//                    "masked", "all_pairs": true, "bytes_of_pair": 5}, …]}
//     bench → peer   0 masked 4096
//     peer → bench   {"forward_ms": …, "backward_ms": …, "peak_bytes": …} or {"error": "…"}
//
// `attention` counts the mechanisms that its command names. A form of `all_pairs` computes all N ×
// N scores, of which the mechanism has fewer: its row has the counts of full attention. A form that
// stores `bytes_of_pair` for each of N × N pairs is skipped when these are too many. The
// milliseconds of backward are null if a form has none.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <sys/types.h>

#include "bench/results.h"

namespace weft::bench {

class Peer {
 public:
  // Starts it. Ctrl-C does not reach it: it ends with this object.
  explicit Peer(const std::vector<std::string>& command);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // The next line of its output; throws if it has ended, with the text of an "error", or if the
  // line is not an object.
  Row read();
  // Sends a line and reads the answer.
  Row ask(const std::string& line);

 private:
  pid_t child_ = -1;
  int to_ = -1;
  std::FILE* from_ = nullptr;
};

}  // namespace weft::bench
