#include "runtime/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

namespace weft {
namespace {

// The number after a word of a file; with no word, at its beginning.
std::optional<std::size_t> number_after(const std::string& word, const std::string& file) {
  std::ifstream words(file);
  for (std::string read; read != word && words >> read;) {
  }
  std::size_t number = 0;
  return words >> number ? std::optional(number) : std::nullopt;
}

}  // namespace

std::size_t available_host_memory(const std::string& root) {
  constexpr std::size_t kibi = 1024;
  const std::string machine = root + "/proc/meminfo", group = root + "/sys/fs/cgroup/memory.";
  std::size_t available = std::numeric_limits<std::size_t>::max();
  if (const auto memory = number_after("MemAvailable:", machine)) {
    available = kibi * (*memory + number_after("SwapFree:", machine).value_or(0));
  }
  const auto limit = number_after("", group + "max");  // without a limit: the word "max"
  const auto used = number_after("", group + "current");
  if (limit && used) {
    const auto file_cache = number_after("inactive_file", group + "stat").value_or(0);
    const std::size_t held = *used - std::min(*used, file_cache);
    available = std::min(available, *limit - std::min(*limit, held));
  }
  return available;
}

}  // namespace weft
