// The number of threads in a scope.
#pragma once

#include "runtime/parallel.h"

namespace weft {

class ThreadsOf {
 public:
  explicit ThreadsOf(int n) : before_(threads()) { set_threads(n); }
  ~ThreadsOf() { set_threads(before_); }
  ThreadsOf(const ThreadsOf&) = delete;
  ThreadsOf& operator=(const ThreadsOf&) = delete;

 private:
  int before_;
};

}  // namespace weft
