// The table of mechanisms, and single fact sheets.
#include "ops/attention/mechanism.h"
#include "tests/program.h"

using namespace weft;

namespace {

ProgramRun zoo(const Words& words) { return run_program(WEFT_PROGRAMS "/zoo", words); }

TEST_SUITE("tools") {

TEST_CASE("zoo: the README's table is its output") {
  const ProgramRun run = zoo({});
  REQUIRE(run.status == 0);
  const std::string readme = read_file(WEFT_SOURCE_ROOT "/README.md");
  CHECK_MESSAGE(contains(readme, run.out), "replace the table of README.md by the output of zoo");
  for (const Mechanism* mechanism : mechanisms()) {
    CHECK(contains(run.out, "| `" + mechanism->name + (mechanism->wrapper ? "/…`" : "`")));
  }
}

TEST_CASE("zoo: one fact sheet with its page") {
  for (const Mechanism* mechanism : mechanisms()) {
    CAPTURE(mechanism->name);
    const ProgramRun run = zoo({mechanism->name});
    CHECK(run.status == 0);
    CHECK(contains(run.out, mechanism->paper));
    CHECK(contains(run.out, page_of(*mechanism)));
    CHECK(page_of(*mechanism).size() > 200);
    for (const OptionSheet& option : mechanism->options) CHECK(contains(run.out, option.help));
  }
}

TEST_CASE("zoo: bad words") {
  check_refused(zoo({"fulll"}), "did you mean full?");
  check_refused(zoo({"full", "topk"}), "the name of one mechanism");
  check_refused(zoo({"--full"}), "the name of one mechanism");
}

}  // TEST_SUITE("tools")

}  // namespace
