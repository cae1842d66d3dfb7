// Files of options, for --config. TOML 1.0 (toml.io), read by toml++, with the long options of a
// training as its keys, spelt as --help spells them:
//
//     preset = "text8-full-conv"
//     lr = 0.5                # an integer does, where a number is wanted
//     act = false             # a flag
//     seeds = [1, 2, 3]
//
// There are no tables: a key stands alone, as an option does. Paths are as on the command line, and
// what is asked for at one time alone (once_group) stands there alone.
#pragma once

#include <string>
#include <vector>

#include "apps/command_line/configuration.h"
#include "apps/command_line/options.h"
#include "apps/command_line/settings.h"

namespace weft {

inline constexpr const char* once_group = "On the command line alone";

// A key and its value, as words of a command line.
struct ConfigEntry {
  std::vector<std::string> words;
  std::string place;  // "run.toml:3"
};

// What stands in the file, which is not trusted, by lines. Throws, with file and line, for what is
// no TOML, a key that is no option of `command`, and a value of another type than the option's.
std::vector<ConfigEntry> read_config(const std::string& path, const Options& command);

// An option and its value, to be written.
struct ConfigValue {
  std::string key;
  Json value;
  std::string help;
};
// As a file, each with its help behind it. Throws where TOML has no such value: for text that is
// not UTF-8, and integers from 2⁶³ on.
std::string config_text(const std::vector<ConfigValue>& values);
void print_config(const std::vector<ConfigValue>& values, bool json);  // as one object

// What --print-config prints: all that a training is told, for --config to say again. What is
// empty is left out. Returns the exit status.
template <class Command>
int print_config(const Command& command) {
  std::vector<ConfigValue> values;
  const auto add = [&](const char* key, const Json& value, const char* help) {
    const bool empty = value == Json("") || value == Json::array();
    if (!empty) values.push_back({key, value, help});
  };
  const RunOptions& run = command.run;
  add("preset", command.settings.preset, "whose settings were taken first");
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
