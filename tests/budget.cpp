#include "tests/budget.h"

#include <cstdio>
#include <ctime>
#include <map>
#include <utility>

namespace weft {
namespace {

// Of all threads of the process: other programs on the machine do not count.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::map<std::string, double> seconds_of;
std::string owner;
double since = 0;

}  // namespace

void work_for(const std::string& mechanism) {
  if (mechanism == owner) return;
  const double now = processor_seconds();
  seconds_of[owner] += now - std::exchange(since, now);
  owner = mechanism;
}

void print_times() {
  work_for("");
  for (const auto& [mechanism, seconds] : seconds_of) {
    if (!mechanism.empty()) std::printf("weft-time %s %.2f\n", mechanism.c_str(), seconds);
  }
}

}  // namespace weft
