// The manifest of a checkpoint.
#include "apps/training/saved_training.h"
#include "tests/fuzz/fuzz.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  return fuzz::read_untrusted("the manifest", [&] {
    name_of(said_by_manifest(text, "the manifest"));
  });
}
