// The mutation check's list of faults, without planting any.
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

TEST_SUITE("tools") {

TEST_CASE("mutation: each of at least 400 faults can be planted at one place of the sources" *
          not_sanitized()) {
  const ProgramRun run = run_program(WEFT_SOURCE_ROOT "/tests/mutation/mutate", {"--check"});
  if (skipped(run)) return;
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK_MESSAGE(std::stoi(run.out) >= 400, run.out);
}

TEST_CASE("mutation: a list that is none, and faults whose text is not there once" *
          not_sanitized()) {
  const TemporaryFolder folder;
  const std::string tests = folder.path("tests/mutation");
  std::filesystem::create_directories(tests);
  std::filesystem::copy(WEFT_SOURCE_ROOT "/tests/mutation/mutate", tests);
  const auto check = [&](const std::string& faults, const std::string& source) {
    folder.file("tests/mutation/ops.faults", faults);
    folder.file("source", source);
    return run_program(tests + "/mutate", {"--check"});
  };
  const std::string fault = "a: sign\nsource | *\n- x +\n-   y\n+ x - y\n";
  const ProgramRun good = check("# one\n\n" + fault, "z = x +\n  y;\n");
  if (skipped(good)) return;
  CHECK_MESSAGE(good.status == 0, good.err);
  CHECK(good.out == "1 faults: 1 sign, 0 factor, 0 index, 0 missing\n");
  check_refused(check(fault, "z = x + y;\n"), "a: its text stands 0 times in source, wanted once");
  check_refused(check(fault, "x +\n  y; x +\n  y;\n"), "stands 2 times in source");
  check_refused(check(fault + "\n" + fault, "x +\n  y"), "two faults called a");
  check_refused(check("\na: sgn\nsource | *\n- x\n+ y\n", "x"), "ops.faults:2: wanted NAME: KIND");
  for (const std::string bad :
       {"a: sign\n", "a: sign\nsource\n- x\n+ y\n", "a: sign\nsource | *\n+ y\n",
        "a: sign\nsource | *\n- x\n+ y\n- z\n"}) {
    check_refused(check(bad, "x"), "ops.faults:1: wanted NAME: KIND, FILE | TESTS");
  }
  check_refused(check("a: sign\nnothing | *\n- x\n+ y\n", "x"), "nothing: cannot be read");
}

}  // TEST_SUITE("tools")

}  // namespace
