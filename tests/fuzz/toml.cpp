// A file of options, up to what the options' own types take.
#include "apps/command_line/command_line.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/settings.h"

using namespace weft;

namespace {

// Made once: it takes longer than what it is made for.
struct Command {
  Command() {
    add_settings(app, settings, "", {"preset"});
    add_run_options(app, run);
  }

  FuzzSettings settings;
  RunOptions run;
  Program app{"", "train"};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string& file = fuzz::memory_file(data, size);
  static Command command;
  return fuzz::read_untrusted(file, [&] {
    for (const ConfigEntry& entry : read_config(file, command.app)) {
      try {
        command.app.parse(entry.words);
      } catch (const Error& error) {
        fail("{}: {}", entry.place, error.what());
      }
    }
  });
}
