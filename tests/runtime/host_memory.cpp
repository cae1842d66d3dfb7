#include "runtime/host_memory.h"

#include <filesystem>
#include <limits>

#include "tests/check.h"
#include "tests/files.h"

namespace weft {
namespace {

// A folder that stands for the root of a machine.
struct Machine {
  TemporaryFolder folder;

  void file(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder.path(name)).parent_path());
    folder.file(name, text);
  }
  std::size_t available() const { return available_host_memory(folder.path("")); }
};

TEST_SUITE("runtime") {

TEST_CASE("available host memory: the machine's, or what the control group leaves") {
  const Machine machine;
  CHECK(machine.available() == std::numeric_limits<std::size_t>::max());
  machine.file("proc/meminfo",
               "MemTotal:       24000 kB\nMemFree:        1000 kB\nMemAvailable:   5000 kB\n"
               "SwapTotal:      9000 kB\nSwapFree:        700 kB\nHugepagesize:   2048 kB\n");
  CHECK(machine.available() == 5700 * 1024);
  machine.file("sys/fs/cgroup/memory.max", "max\n");
  machine.file("sys/fs/cgroup/memory.current", "3000000\n");
  CHECK(machine.available() == 5700 * 1024);
  machine.file("sys/fs/cgroup/memory.max", "4000000\n");
  CHECK(machine.available() == 1000000);
  machine.file("sys/fs/cgroup/memory.stat", "anon 2000000\ninactive_file 600000\nactive_file 7\n");
  CHECK(machine.available() == 1600000);
  machine.file("sys/fs/cgroup/memory.current", "4700000\n");
  CHECK(machine.available() == 0);
  machine.file("sys/fs/cgroup/memory.max", "400000000\n");
  CHECK(machine.available() == 5700 * 1024);
}

TEST_CASE("available host memory: this machine has some") {
  CHECK(available_host_memory() > std::size_t{1} << 20);
}

}  // TEST_SUITE("runtime")

}  // namespace
}  // namespace weft
