// The option --plugin of every program.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "apps/common/plugin.h"

namespace weft {

// The files are loaded while the line is read, before anything looks for a mechanism.
inline CLI::Option* add_plugin_option(CLI::App& app) {
  const auto load = [](const std::vector<std::string>& files) {
    for (const std::string& file : files) load_plugin(file);
  };
  return app.add_option_function<std::vector<std::string>>("--plugin", load, plugin_help)
      ->type_name("FILE ...")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace weft
