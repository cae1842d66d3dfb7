// How much memory the host has left for this process.
#pragma once

#include <cstddef>
#include <string>

namespace weft {

// Bytes that this process can still fill before Linux kills it: the machine's available memory and
// free swap, or what the limit of its control group (cgroup v2) leaves if that is less. Pages that
// the kernel can reclaim from its file cache count as available. `root` is where /proc and /sys
// are. Where the machine does not say: the largest number.
std::size_t available_host_memory(const std::string& root = "");

}  // namespace weft
