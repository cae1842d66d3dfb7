// Programs as users run them.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/wait.h>

#include "doctest/doctest.h"
#include "tests/files.h"

namespace weft {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct ProgramRun {
  std::string program;  // its name
  int status = 0;
  std::string out, err;
};

inline std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// With one thread unless `words` say otherwise: the number that a busy machine disturbs least.
inline ProgramRun run_program(const std::string& program, const Words& words) {
  const TemporaryFolder folder;
  std::string command = "OMP_NUM_THREADS=1 " + quoted(program);
  for (const std::string& word : words) command += " " + quoted(word);
  command += " </dev/null >" + quoted(folder.path("out")) + " 2>" + quoted(folder.path("err"));
  const int status = std::system(command.c_str());
  return {std::filesystem::path(program).filename().string(),
          WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder.path("out")),
          read_file(folder.path("err"))};
}

// A file of the build that is tested, by its path there. It is found from this program, not by a
// macro: ccache shares the objects of tests between builds.
inline std::string built(const std::string& path) {
  static const auto build =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  return (build / path).string();
}

inline ProgramRun app(const std::string& name, const Words& words) {
  return run_program(built("apps/" + name), words);
}

inline ProgramRun shell(const std::string& command) {
  return run_program("/bin/sh", {"-c", command});
}

// Without python3 there is nothing to run: prints that, and returns true.
inline bool skipped(const ProgramRun& run) {
  constexpr int no_python = 127;
  if (run.status == no_python) MESSAGE("skipped: " << run.err);
  return run.status == no_python;
}

// Exit status 2, one line on stderr that begins with the program's name and contains `part`, and
// nothing on stdout.
inline void check_refused(const ProgramRun& run, const std::string& part) {
  CHECK(run.status == 2);
  CHECK_MESSAGE(contains(run.err, part), run.err);
  CHECK(run.err.rfind(run.program + ": ", 0) == 0);
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  CHECK(run.out.empty());
}

}  // namespace weft
