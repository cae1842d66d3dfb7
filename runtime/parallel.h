// Threads: OpenMP, and only in parallel.cpp.
//
// Work is split by shape, never by the number of threads, and partial sums are added in the order
// of the tasks: the bits are the same for any number of threads. Library products run on one
// thread: OneThread.
//
// Any thread of a program may compute, each with tapes of its own, and all may read the same model.
// A forked child computes on one thread, since OpenMP's threads are not in it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/types.h"

namespace weft {

int threads();  // of parallel loops
// n >= 1; the default is the number of available cores. While nothing computes, on any thread.
void set_threads(int n);

// In its scope the calling thread's OpenMP default is one thread: oneDNN and OpenBLAS take their
// number from it.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Numbers the threads of the parallel loops that begin in the scope where it is made: 0 … threads()
// − 1, or less than the number of calls if that is smaller.
class ThreadNumbers {
 public:
  ThreadNumbers();
  int mine() const;  // of the calling thread

 private:
  int level_;  // nesting depth of parallel loops at construction
};

namespace parallel_detail {

// Calls call(of, i) for i = 0 … count−1, on a team of threads.
void run(int team, i64 count, void (*call)(const void* of, i64 i), const void* of);

}  // namespace parallel_detail

// Calls f(i) for i = 0 … count−1, each once, in any order, on several threads. An exception from
// any call is rethrown after the loop.
template <class F>
void parallel_for(i64 count, const F& f) {
  const int team = static_cast<int>(std::min<i64>(threads(), count));
  if (team <= 1) {
    for (i64 i = 0; i < count; ++i) f(i);
    return;
  }
  parallel_detail::run(
      team, count, [](const void* f, i64 i) { (*static_cast<const F*>(f))(i); }, &f);
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
