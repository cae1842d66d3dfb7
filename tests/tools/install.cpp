// What `meson install` gives, as a program outside the tree uses it.
#include <sstream>

#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

// A shell command, its output with it.
ProgramRun shell(const std::string& command) { return run_program("/bin/sh", {"-c", command}); }

TEST_SUITE("tools") {

TEST_CASE("install: a program outside the tree builds against the library and learns") {
  if (sanitized) {
    MESSAGE("skipped: the library carries the sanitizers, and so would all that links it");
    return;
  }
  const TemporaryFolder folder;
  const ProgramRun install = shell("meson install -C " WEFT_PROGRAMS "/.. --no-rebuild --destdir " +
                                   quoted(folder.path("root")));
  REQUIRE_MESSAGE(install.status == 0, install.err);
  const std::string here = "root=" + quoted(folder.path("root")) + "; cd " + quoted(folder.path()) +
                           "; pc=$(find root -name weft.pc); export PKG_CONFIG_PATH=${pc%/*}"
                           " PKG_CONFIG_SYSROOT_DIR=$root; ";
  const ProgramRun build =
      shell(here + "g++ -std=c++20 " WEFT_SOURCE_ROOT
                   "/tests/install/count.cpp -o count $(pkg-config --cflags --libs weft)");
  REQUIRE_MESSAGE(build.status == 0, build.err);
  const ProgramRun run = shell(here +
                               "so=$(find root -name libweft.so); "
                               "LD_LIBRARY_PATH=${so%/*} ./count");
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const std::size_t last = run.out.rfind("loss ");
  REQUIRE(last != std::string::npos);
  CHECK_MESSAGE(std::stod(run.out.substr(last + 5)) < 0.5, run.out);  // guessing: ln 10 = 2.3
  for (const std::string name : {"charlm", "wordlm", "vision", "attend", "zoo", "devices"}) {
    CHECK(
        !shell("find " + quoted(folder.path("root")) + " -path '*/bin/" + name + "'").out.empty());
  }
}

TEST_CASE("install: the README shows that program") {
  const std::string program = read_file(WEFT_SOURCE_ROOT "/tests/install/count.cpp");
  std::istringstream lines(program.substr(program.find("#include \"")));
  std::string shown;
  for (std::string line; std::getline(lines, line);) {
    shown += (line.empty() ? "" : "    ") + line + "\n";
  }
  CHECK_MESSAGE(contains(read_file(WEFT_SOURCE_ROOT "/README.md"), shown),
                "replace the program of README.md by tests/install/count.cpp");
}

}  // TEST_SUITE("tools")

}  // namespace
