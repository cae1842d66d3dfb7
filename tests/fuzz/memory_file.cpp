#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

namespace weft::fuzz {

MemoryFile::MemoryFile(const std::uint8_t* data, std::size_t size)
    : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)),
      path_("/proc/self/fd/" + std::to_string(descriptor_)) {
  require(descriptor_ >= 0 && ::write(descriptor_, data, size) == static_cast<ssize_t>(size),
          "fuzz: no file of {} bytes can be made in memory", size);
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

}  // namespace weft::fuzz
