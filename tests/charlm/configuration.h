// What charlm would train with, by --print-config.
#pragma once

#include <nlohmann/json.hpp>

#include "tests/charlm/tiny.h"

namespace weft {

inline nlohmann::json configuration(const Words& words) {
  const ProgramRun run = charlm_program(Words{"train", "--print-config", "--json-lines"} + words);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  return nlohmann::json::parse(run.out);
}

}  // namespace weft
