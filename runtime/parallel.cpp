#include "runtime/parallel.h"

#include <omp.h>

#include "runtime/error.h"

namespace weft {
namespace {

// Sets the OpenMP default to one thread, which the matrix libraries use; our own loops state their
// number of threads.
int initial_threads() {
  const int n = omp_get_max_threads();
  omp_set_num_threads(1);
  return n;
}

int& thread_count() {
  static int count = initial_threads();
  return count;
}

}  // namespace

int threads() { return thread_count(); }

void set_threads(int n) {
  require(n >= 1, "threads: wanted at least 1, got {}", n);
  thread_count() = n;
}

ThreadNumbers::ThreadNumbers() : level_(omp_get_level()) {}

int ThreadNumbers::mine() const {
  return omp_get_level() > level_ ? omp_get_thread_num() : 0;  // a loop of one call is not parallel
}

}  // namespace weft
