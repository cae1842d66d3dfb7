// Configuration files for --config: TOML 1.0 (toml.io), parsed by toml++. The keys are the long
// options of training, without dashes:
//
//     preset = "text8-full-conv"
//     lr = 0.5                # an integer is accepted for a number
//     act = false             # a flag
//     seeds = [1, 2, 3]
//
// Tables are not allowed. Relative paths are relative to the working directory, as on the command
// line. Options that make sense for one invocation only (once_group) are refused.
#pragma once

#include <string>
#include <vector>

#include "apps/command_line/configuration.h"
#include "apps/command_line/options.h"
#include "apps/command_line/settings.h"

namespace weft {

inline constexpr const char* once_group = "Only on the command line";

// A key and its value, as command-line words.
struct ConfigEntry {
  std::vector<std::string> words;
  std::string place;  // "run.toml:3"
};

// The entries of a file, in order of lines. The file is not trusted. Throws, with file and line,
// for invalid TOML, a key that is not an option of `command`, and a value of the wrong type.
std::vector<ConfigEntry> read_config(const std::string& path, const Options& command);

// An option and its value, for writing a file.
struct ConfigValue {
  std::string key;
  Json value;
  std::string help;
};
// Prints a JSON object, or TOML with each value's help as a comment. Throws for values that TOML,
// where it is wanted, cannot express: text that is not UTF-8, and integers of 2⁶³ or more.
void print_config(const std::vector<ConfigValue>& values, bool json);

// --print-config: prints all options of a training in the form that --config reads, without empty
// ones. Returns the exit status. Throws for options that a training would refuse.
template <class Command>
int print_config(const Command& command) {
  check(command.run);
  std::vector<ConfigValue> values;
  const auto add = [&](const char* key, const Json& value, const char* help) {
    const bool empty = value == Json("") || value == Json::array();
    if (!empty) values.push_back({key, value, help});
  };
  const RunOptions& run = command.run;
  add("preset", command.settings.preset, "the preset that the other settings modify");
  each_setting(command.settings, [&](const char* key, const auto& value, const Limits&,
                                     const char* help) { add(key, value, help); });
  if constexpr (requires { command.allow_leaky; }) {
    add("allow-leaky", command.allow_leaky, allow_leaky_help);
  }
  each_run_option(run, add);
  if (run.threads > 0) add("threads", run.threads, threads_help);
  print_config(values, run.json_lines);
  return 0;
}

}  // namespace weft
