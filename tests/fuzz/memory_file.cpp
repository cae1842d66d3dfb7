#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

namespace weft::fuzz {

const std::string& memory_file(const std::uint8_t* data, std::size_t size) {
  static const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  require(descriptor >= 0 && ::ftruncate(descriptor, static_cast<off_t>(size)) == 0 &&
              ::pwrite(descriptor, data, size, 0) == static_cast<ssize_t>(size),
          "fuzz: no file of {} bytes can be made in memory", size);
  return path;
}

}  // namespace weft::fuzz
