// Threads: OpenMP, and only here.
//
// Work is split by shape, never by the number of threads, and partial sums are added in the order
// of the tasks: the bits are the same for any number of threads. Library products run on one thread
// (oneDNN and OpenBLAS take their number from the OpenMP default, which stays at one).
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>

#include "runtime/types.h"

namespace weft {

int threads();            // of parallel loops
void set_threads(int n);  // n >= 1; the default is the number of available cores

// Numbers the threads of the parallel loops that begin in the scope where it is made: 0 … threads()
// − 1, or less than the number of calls if that is smaller.
class ThreadNumbers {
 public:
  ThreadNumbers();
  int mine() const;  // of the calling thread

 private:
  int level_;  // nesting depth of parallel loops at construction
};

// Calls f(i) for i = 0 … count−1, each once, in any order, on several threads. An exception from
// any call is rethrown after the loop.
template <class F>
void parallel_for(i64 count, const F& f) {
  const int team = static_cast<int>(std::min<i64>(threads(), count));
  if (team <= 1) {
    for (i64 i = 0; i < count; ++i) f(i);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
  for (i64 i = 0; i < count; ++i) {
    try {
      f(i);
    } catch (...) {
#pragma omp critical(weft_parallel_for)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// Splits 0 … count−1 into ranges of `grain` and calls f(begin, end) for each, in parallel.
template <class F>
void parallel_ranges(i64 count, i64 grain, const F& f) {
  const i64 pieces = (count + grain - 1) / grain;
  parallel_for(pieces, [&](i64 piece) { f(piece * grain, std::min(count, (piece + 1) * grain)); });
}

// Calls f(i) for i = 0 … count−1 where a call takes about `work` multiply-adds. Short calls are
// grouped: waking a thread takes as long as many of them, and milliseconds if another program has
// its core.
template <class F>
void parallel_for(i64 count, i64 work, const F& f) {
  constexpr i64 least = 1 << 19;  // the least work that is worth waking a thread
  const i64 together = std::max<i64>(1, least / std::max<i64>(1, work));
  parallel_ranges(count, together, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) f(i);
  });
}

}  // namespace weft
