// NumPy's arrays; what was read is walked through, as its strides have it.
#include "nn/npy.h"
#include "tests/fuzz/fuzz.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  return fuzz::read_untrusted(file.path(), [&] { read_npy(file.path()).packed(); });
}
