// Text for models of characters.
#include "apps/data/text.h"
#include "tests/fuzz/fuzz.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string& file = fuzz::memory_file(data, size);
  fuzz::read_untrusted(file, [&] { load_text(file, "characters"); });
  return fuzz::read_untrusted(file, [&] { load_text(file, "text8"); });
}
