// Pairs of papers as Long Range Arena releases them.
#include "apps/lra/documents.h"
#include "tests/fuzz/fuzz.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string& file = fuzz::memory_file(data, size);
  return fuzz::read_untrusted(file, [&] { lra::read_pairs(file); });
}
