#include "runtime/parallel.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/error.h"
#include "runtime/scratch.h"
#include "tests/check.h"
#include "tests/threads.h"

namespace weft {
namespace {

TEST_SUITE("runtime") {

TEST_CASE("a parallel loop calls each index once, for any number of threads") {
  for (const int team : {1, 2, 3, 8}) {
    const ThreadsOf scope(team);
    CHECK(threads() == team);
    std::vector<int> calls(1000);
    parallel_for(1000, [&](i64 i) { ++calls[static_cast<std::size_t>(i)]; });
    CHECK(calls == std::vector<int>(1000, 1));
    parallel_for(0, [&](i64) { FAIL("called"); });
  }
}

TEST_CASE("ranges cover everything, cut by the grain alone") {
  const ThreadsOf scope(2);
  std::vector<int> calls(103);
  std::atomic<int> pieces = 0;
  parallel_ranges(103, 10, [&](i64 begin, i64 end) {
    ++pieces;
    if (begin % 10 != 0 || (end != begin + 10 && end != 103)) pieces += 1000;
    for (i64 i = begin; i < end; ++i) ++calls[static_cast<std::size_t>(i)];
  });
  CHECK(pieces == 11);
  CHECK(calls == std::vector<int>(103, 1));
}

TEST_CASE("scratch of a parallel loop: a slice for each thread, and the counters see them") {
  constexpr i64 count = 20;
  for (const int team : {1, 3}) {
    const ThreadsOf scope(team);
    const std::size_t before = allocator().counts().live;
    const ThreadScratch<float> outer(100, count);
    CHECK(allocator().counts().live - before >= team * count * sizeof(float));
    std::atomic<int> foreign = 0;
    parallel_for(100, [&](i64 i) {
      float* const mine = outer.mine();
      std::fill(mine, mine + count, static_cast<float>(i));
      const ThreadScratch<float> inner(1, count);  // a loop inside has one thread
      parallel_for(1, [&](i64) { std::fill(inner.mine(), inner.mine() + count, -1.0f); });
      std::this_thread::yield();
      foreign += std::count(mine, mine + count, static_cast<float>(i)) != count;
    });
    CHECK(foreign == 0);
  }
}

TEST_CASE("short calls are not worth a thread, long ones are cut as they are") {
  const ThreadsOf scope(4);
  std::vector<std::thread::id> callers(100);
  parallel_for(100, 1000,
               [&](i64 i) { callers[static_cast<std::size_t>(i)] = std::this_thread::get_id(); });
  CHECK(callers == std::vector(100, std::this_thread::get_id()));
  for (const i64 work : {i64{0}, i64{1} << 16, i64{1} << 40}) {
    std::vector<int> calls(1000);
    parallel_for(1000, work, [&](i64 i) { ++calls[static_cast<std::size_t>(i)]; });
    CHECK(calls == std::vector<int>(1000, 1));
  }
}

TEST_CASE("an exception in any call comes out of the loop") {
  for (const int team : {1, 2}) {
    const ThreadsOf scope(team);
    for (const i64 bad : {0, 57, 99}) {
      CHECK_ERROR(parallel_for(100, [&](i64 i) { require(i != bad, "piece {} failed", i); }),
                  fmt::format("piece {} failed", bad).c_str());
    }
    std::atomic<int> calls = 0;
    parallel_for(10, [&](i64) { ++calls; });
    CHECK(calls == 10);
  }
}

TEST_CASE("loops nest") {
  const ThreadsOf scope(2);
  std::atomic<int> calls = 0;
  parallel_for(7, [&](i64) { parallel_for(11, [&](i64) { ++calls; }); });
  CHECK(calls == 77);
}

TEST_CASE("a forked child computes, on one thread") {
  const ThreadsOf scope(2);
  std::atomic<int> calls = 0;
  parallel_for(7, [&](i64) { ++calls; });
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // OpenMP waits for threads that only the parent has
    parallel_for(7, [&](i64) { ++calls; });
    _exit(threads() == 1 && calls == 14 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(threads() == 2);
}

TEST_CASE("a wrong number of threads is refused") {
  CHECK_ERROR(set_threads(0), "wanted at least 1, got 0");
}

}  // TEST_SUITE("runtime")
}  // namespace
}  // namespace weft
