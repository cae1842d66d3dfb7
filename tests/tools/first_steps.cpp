// The first programs that a newcomer reads, as they are run.
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

double last_number(const std::string& text, const std::string& before) {
  const std::size_t at = text.rfind(before);
  REQUIRE_MESSAGE(at != std::string::npos, text);
  return std::stod(text.substr(at + before.size()));
}

TEST_SUITE("tools") {

TEST_CASE("first steps: count learns to count") {
  const ProgramRun run = app("count", {});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK(last_number(run.out, "loss ") < 0.5);  // guessing: ln 10 = 2.3
}

TEST_CASE("first steps: char learns a text, and writes on") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "weft and warp, ";
  const ProgramRun run = app("char", {folder.file("text", text), few_here() ? "2" : "60"});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  if (few_here()) return;
  CHECK(last_number(run.out, "step 60  ") < 0.5);  // one of eleven characters: 3.5 bits
  const std::string sample = run.out.substr(run.out.find("\n\n") + 2);
  CHECK(sample.size() == 20 + 400 + 1);
  CHECK_MESSAGE(contains(sample.substr(200), "weft and warp, weft and warp, "), sample);
}

TEST_CASE("first steps: char without a text or steps" * not_sanitized()) {
  const TemporaryFolder folder;
  check_refused(app("char", {}), "wanted a text of more than 64 bytes, got 0");
  check_refused(app("char", {folder.file("text", "short\n")}), "got 6");
  check_refused(app("char", {folder.path()}), "got 0");
  const std::string text = folder.file("long", std::string(100, 'a'));
  for (const char* steps : {"abc", "-5", "0", "7x"}) {
    check_refused(app("char", {text, steps}), "wanted 1 or more STEPS, got " + std::string(steps));
  }
}

}  // TEST_SUITE("tools")

}  // namespace
