// The tables of papers, as far as they take no training.
#include "tests/program.h"

using namespace weft;

namespace {

TEST_SUITE("bench") {

TEST_CASE("tables: the commit is that of the programs that completed the runs") {
  const TemporaryFolder folder;
  folder.file("a.json", "{\"step\": 2, \"commit\": \"2222222\", \"result\": []}");
  folder.file("b.json", "{\"step\": 2, \"commit\": \"1111111-dirty\", \"result\": []}");
  folder.file("old.json", "{\"step\": 2, \"result\": []}");
  const auto commits = [&](const std::string& names) {
    const std::string lines =
        "import pathlib, sys\nsys.path.insert(0, sys.argv[1])\nimport papers\n"
        "print(papers.commits(map(pathlib.Path, sys.argv[2:])))";
    return run_program("python3", {"-c", lines, WEFT_SOURCE_ROOT "/bench/tables",
                                   folder.path("a.json"), folder.path(names)});
  };
  const ProgramRun two = commits("b.json");
  if (skipped(two)) return;
  CHECK_MESSAGE(two.status == 0, two.err);
  CHECK(two.out == "1111111-dirty, 2222222\n");
  CHECK(commits("a.json").out == "2222222\n");
  CHECK(commits("old.json").out == "2222222, not recorded\n");
  CHECK(commits("none.json").out == "2222222, not recorded\n");
}

}  // TEST_SUITE("bench")

}  // namespace
