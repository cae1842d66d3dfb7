// A file of options, up to what the options' own types take.
#include "apps/common/command_line.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/settings.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  return fuzz::read_untrusted(file.path(), [&] {
    FuzzSettings settings;
    RunOptions run;
    CLI::App app("", "train");
    add_settings(app, settings, "");
    add_run_options(app, run);
    for (const ConfigEntry& entry : read_config(file.path(), app)) {
      try {
        app.parse(std::vector<std::string>(entry.words.rbegin(), entry.words.rend()));
      } catch (const CLI::ParseError& error) {
        fail("{}: {}", entry.place, error.what());
      }
    }
  });
}
