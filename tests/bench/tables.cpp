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

TEST_CASE("tables: numbers, files and programs that are not there are refused in one line") {
  const auto said = [](const std::string& table, const Words& words) {
    const ProgramRun run =
        run_program("python3", Words{WEFT_SOURCE_ROOT "/bench/tables/" + table} + words);
    CHECK(run.status != 0);
    CHECK(!contains(run.err, "Traceback"));
    return run.err;
  };
  const TemporaryFolder folder;
  if (skipped(run_program("python3", {"--version"}))) return;
  const Words to = {"--out", folder.path("table")};
  CHECK(
      contains(said("agglomerative-figure-1", to + Words{"--replicas", "0"}), "wanted 1 or more"));
  CHECK(contains(said("agglomerative-figure-1", to + Words{"--lengths", "abc"}), "--lengths"));
  CHECK(contains(said("tenths", {"--data", folder.path("none"), "run"}), "none: cannot be read"));
  CHECK(contains(said("listops", to + Words{"--data", "x", "--build", folder.path("none")}),
                 "does not exist: meson compile"));
  CHECK(!std::filesystem::exists(folder.path("table")));
}

}  // TEST_SUITE("bench")

}  // namespace
