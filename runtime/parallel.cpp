#include "runtime/parallel.h"

#include <omp.h>
#include <pthread.h>

#include <atomic>
#include <exception>

#include "runtime/error.h"

namespace weft {
namespace {

std::atomic<int>& thread_count() {
  static std::atomic<int> count = [] {
    pthread_atfork(nullptr, nullptr, [] { thread_count() = 1; });
    return omp_get_max_threads();
  }();
  return count;
}

}  // namespace

int threads() { return thread_count(); }

void set_threads(int n) {
  require(n >= 1, "threads: wanted at least 1, got {}", n);
  thread_count() = n;
}

OneThread::OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }

OneThread::~OneThread() { omp_set_num_threads(before_); }

ThreadNumbers::ThreadNumbers() : level_(omp_get_level()) {}

int ThreadNumbers::mine() const {
  return omp_get_level() > level_ ? omp_get_thread_num() : 0;  // a loop of one call is not parallel
}

namespace parallel_detail {

void run(int team, i64 count, void (*call)(const void* of, i64 i), const void* of) {
  std::exception_ptr failure;
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
  for (i64 i = 0; i < count; ++i) {
    try {
      call(of, i);
    } catch (...) {
#pragma omp critical(weft_parallel_for)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace parallel_detail

}  // namespace weft
