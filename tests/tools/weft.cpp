// The shell script ./weft.
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

TEST_SUITE("tools") {

TEST_CASE("weft: its help names every program and benchmark" * not_sanitized()) {
  const ProgramRun run = run_program(WEFT_SOURCE_ROOT "/weft", {"help"});
  CHECK(run.status == 0);
  CHECK(run.err.empty());
  for (const std::string name : {"charlm", "wordlm", "vision", "lra", "attend", "devices", "zoo",
                                 "count", "char", "train_bench", "attention_bench", "swap"}) {
    CHECK_MESSAGE(contains(run.out, " " + name), name);
  }
}

TEST_CASE("weft: bad words" * not_sanitized()) {
  check_refused(run_program(WEFT_SOURCE_ROOT "/weft", {"charml"}), "no program 'charml'");
  check_refused(run_program(WEFT_SOURCE_ROOT "/weft", {"test", "--no-skip", "attention"}),
                "test: 'attention' is behind an option");
  check_refused(run_program(WEFT_SOURCE_ROOT "/weft", {"bench", "nothing"}),
                "no program 'nothing'");
  check_refused(run_program(WEFT_SOURCE_ROOT "/weft", {"nightly", "nothing"}),
                "no step 'nothing'; there are: all races without-libraries coverage");
}

}  // TEST_SUITE("tools")

}  // namespace
