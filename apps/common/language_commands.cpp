#include "apps/common/language_commands.h"

#include <cstdio>

#include "ops/attention/mechanism.h"

namespace weft {

void check(const SampleCommand& command) {
  require(command.tokens >= 0, "--tokens: wanted 0 or more, got {}", command.tokens);
  check(command.options);
}

void print_sample(const std::string& attention, Progress& progress,
                  const std::function<std::string()>& write) {
  const AttentionSpec spec(attention);
  if (spec.mechanism().decode == nullptr) {
    progress.print(fmt::format("sample none: {} cannot decode step by step", spec.text()));
    return;
  }
  progress.print("sample " + write());
}

void say_restarted(const char* app, std::int64_t length, const char* unit) {
  fmt::print(stderr,
             "{}: past the {} positions of the model: it starts again from the last {} {}, "
             "now and whenever they are used up\n",
             app, length, length / 2, unit);
}

void say_rate(const char* app, std::int64_t tokens, double seconds) {
  fmt::print(stderr, "{}: {} tokens/s\n", app, short_number(static_cast<double>(tokens) / seconds));
}

}  // namespace weft
