// The command line of a benchmark.
#pragma once

#include <optional>

#include <CLI/CLI.hpp>

#include "apps/common/extras.h"
#include "runtime/error.h"

namespace weft::bench {

// Reads the line; the status to end with after --help and its like, otherwise nothing. A line that
// is wrong is an Error, which run_main says in one line.
inline std::optional<int> parsed(CLI::App& app, int argc, char** argv) {
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Error& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fail("{}", error.what());
  }
  refuse_extras(app, argv[0]);
  return {};
}

}  // namespace weft::bench
