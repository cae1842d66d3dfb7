// third_party/stage, which gathers what weft is built from.
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

TEST_SUITE("tools") {

TEST_CASE("stage: what metapackages stand for, what libraries require, and the font of pictures" *
          not_sanitized()) {
  const TemporaryFolder folder;
  const std::string staged = folder.path("staged");
  const ProgramRun run = run_program(WEFT_SOURCE_ROOT "/third_party/stage", {staged});
  if (contains(run.err, "is not installed") || contains(run.err, "dpkg is not here")) {
    MESSAGE("skipped: " << run.err);
    return;
  }
  REQUIRE_MESSAGE(run.status == 0, run.err);
  for (const char* const name :
       {"include/boost/context/fiber.hpp", "lib/libboost_context.so", "lib/libdnnl.so",
        "lib/pkgconfig/zlib.pc", "share/DejaVuSans.ttf"}) {
    CHECK_MESSAGE(std::filesystem::exists(staged + "/" + name), name);
  }
  CHECK_FALSE(std::filesystem::exists(staged + "/include/boost/spirit"));
  const std::string listed = shell("CPLUS_INCLUDE_PATH=" + quoted(staged + "/include") +
                                   " sh -c 'echo \"#include <boost/context/fiber.hpp>\" | "
                                   "g++ -std=c++20 -M -x c++ -'")
                                 .out;
  CHECK(contains(listed, staged + "/include/boost/context/fiber.hpp"));
  CHECK_FALSE(contains(listed, " /usr/include/boost/"));
}

}  // TEST_SUITE("tools")

}  // namespace
