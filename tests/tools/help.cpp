// --help of every program and command.
#include <sstream>

#include "tests/program.h"

using namespace weft;

namespace {

// The help of a program, or of one of its commands: it fits a terminal of 80 columns.
std::string help_of(const std::string& program, const Words& command) {
  const ProgramRun run = run_program(program, command + Words{"--help"});
  CHECK(run.status == 0);
  CHECK_MESSAGE(run.err.empty(), run.err);
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    const auto columns =
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
    CHECK_MESSAGE(columns <= 80, line);
  }
  return run.out;
}

// The commands that the help of a program lists.
Words commands_in(const std::string& help) {
  const std::string heading = "\nSubcommands:\n";
  const std::size_t begin = help.find(heading);
  if (begin == std::string::npos) return {};
  std::istringstream lines(help.substr(begin + heading.size()));
  Words commands;
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    if (line[2] != ' ') commands.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return commands;
}

}  // namespace

TEST_SUITE("tools") {

TEST_CASE("help: lines of every program and command have at most 80 columns") {
  for (const std::string name : {"charlm", "wordlm", "vision", "lra", "attend", "devices", "zoo"}) {
    CAPTURE(name);
    const std::string program = built(std::string("apps/") + name);
    const Words commands = commands_in(help_of(program, {}));
    CHECK(commands.empty() == (name == "attend" || name == "devices" || name == "zoo"));
    for (const std::string& command : commands) {
      CAPTURE(command);
      CHECK(contains(help_of(program, {command}), "Usage: " + name + " " + command));
    }
  }
  help_of(built("bench/attention_bench"), {});
  help_of(built("bench/swap"), {});
}

}  // TEST_SUITE("tools")
