// The configuration that a checkpoint carries, here by the settings that all trainings have.
#include "apps/command_line/configuration.h"

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/settings.h"

namespace weft {

void check(const FuzzSettings& settings) {
  check_numbers(settings);
  check_training(settings);
}

}  // namespace weft

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  return fuzz::read_untrusted("the file",
                              [&] { settings_from_json<FuzzSettings>(text, "the file"); });
}
