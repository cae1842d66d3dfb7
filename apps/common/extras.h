// Words of a command line that no option takes.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "apps/common/hint.h"
#include "runtime/error.h"

namespace weft {

// Throws for the first of them, with the option of the command that may be meant; `shown` is what
// one types before --help. The command allows extras, so that the parser leaves them to this.
inline void refuse_extras(const CLI::App& command, const std::string& shown) {
  for (const std::string& word : command.remaining()) {
    const std::string name = word.substr(0, word.find('='));
    require(name.starts_with("-"), "'{}' stands there without an option before it", word);
    std::vector<std::string> known;
    for (const CLI::Option* option : command.get_options()) known.push_back(option->get_name());
    fail("there is no option {}{} {} --help lists them all", name, hint(name, known, "--"), shown);
  }
}

}  // namespace weft
