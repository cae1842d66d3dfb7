#include "runtime/host_memory.h"

#include <limits>

#include "tests/check.h"
#include "tests/files.h"

namespace weft {
namespace {

TEST_SUITE("runtime") {

TEST_CASE("available host memory: the machine's, or what the control group leaves") {
  const TemporaryFolder machine;  // stands for its root
  const auto available = [&] { return available_host_memory(machine.path()); };
  CHECK(available() == std::numeric_limits<std::size_t>::max());
  machine.file("proc/meminfo",
               "MemTotal:       24000 kB\nMemFree:        1000 kB\nMemAvailable:   5000 kB\n"
               "SwapTotal:      9000 kB\nSwapFree:        700 kB\nHugepagesize:   2048 kB\n");
  CHECK(available() == 5700 * 1024);
  machine.file("sys/fs/cgroup/memory.max", "max\n");
  machine.file("sys/fs/cgroup/memory.current", "3000000\n");
  CHECK(available() == 5700 * 1024);
  machine.file("sys/fs/cgroup/memory.max", "4000000\n");
  CHECK(available() == 1000000);
  machine.file("sys/fs/cgroup/memory.stat", "anon 2000000\ninactive_file 600000\nactive_file 7\n");
  CHECK(available() == 1600000);
  machine.file("sys/fs/cgroup/memory.current", "4700000\n");
  CHECK(available() == 0);
  machine.file("sys/fs/cgroup/memory.max", "400000000\n");
  CHECK(available() == 5700 * 1024);
}

TEST_CASE("available host memory: this machine has some") {
  CHECK(available_host_memory() > std::size_t{1} << 20);
}

}  // TEST_SUITE("runtime")

}  // namespace
}  // namespace weft
