// The comparison of two builds: which ratios are regressions, over benchmarks that only print
// times.
#include "tests/program.h"

using namespace weft;

namespace {

// A benchmark whose n-th run takes times[n % count] milliseconds forward and a tenth more backward.
std::string benchmark(const TemporaryFolder& folder, const std::string& name,
                      const std::string& times) {
  const std::string counter = folder.path(name + ".count");
  const std::string lines = "n=$(cat '" + counter +
                            "' 2>/dev/null || echo 0)\n"
                            "echo $((n + 1)) >'" +
                            counter +
                            "'\n"
                            "set -- " +
                            times +
                            "\n"
                            "shift $((n % $#))\n"
                            R"(echo "{\"kind\": \"row\", \"name\": \"full\", \"length\": 64, )"
                            R"(\"forward_ms\": $1, \"peak_bytes\": 1024}")"
                            "\n";
  return folder.program(name, lines);
}

ProgramRun ab(const std::string& now, const std::string& before, const Words& words = {}) {
  return run_program(WEFT_SOURCE_ROOT "/bench/ab", Words{"--this", now, "--with", before} + words);
}

TEST_SUITE("bench") {

TEST_CASE("ab: a regression is an interval wholly above 1.03") {
  const TemporaryFolder folder;
  const std::string before = benchmark(folder, "before", "100 110 120");
  const ProgramRun same = ab(benchmark(folder, "same", "100 110 120"), before);
  CHECK_MESSAGE(same.status == 0, same.err);
  CHECK(contains(same.out, " 1.000  [1.000, 1.000]  forward_ms   full length 64\n"));
  CHECK(contains(same.out, "2 figures, 0 regressions"));
  // Ratios of 1.1 to 1.1.
  const ProgramRun slower = ab(benchmark(folder, "slower", "110 121 132"), before);
  CHECK(slower.status == 1);
  CHECK(contains(slower.out, " 1.100  [1.100, 1.100]  REGRESSION  forward_ms   full length 64\n"));
  CHECK(contains(slower.out, " 1.000  [1.000, 1.000]  peak_bytes   full length 64\n"));
  CHECK(contains(slower.out, "2 figures, 1 regressions"));
  // As often 1.3 as 0.9: undecided.
  const ProgramRun noisy = ab(benchmark(folder, "noisy", "130 143 156 90 99 108"), before);
  CHECK_MESSAGE(noisy.status == 0, noisy.err);
  CHECK(contains(noisy.out, "[0.900, 1.300]"));
  const ProgramRun faster = ab(benchmark(folder, "faster", "50 55 60"), before, {"--json"});
  CHECK_MESSAGE(faster.status == 0, faster.err);
  CHECK(contains(faster.out,
                 R"("figure": "forward_ms", "ratio": 0.5, "low": 0.5, "high": 0.5, "pairs": 15)"));
}

TEST_CASE("ab: behind the program's name all options are the benchmark's") {
  const TemporaryFolder folder;
  const std::string said = folder.path("said");
  const std::string program = folder.program(
      "program", "echo \"$*\" >>'" + said + "'\n" +
                     R"(echo '{"name": "full", "length": 64, "forward_ms": 1}')" + "\n");
  const Words options = {"--runs", "6", "attention_bench", "--core", "--runs", "3"};
  const ProgramRun run = ab(program, program, options);
  CHECK_MESSAGE(run.status == 0, run.err);
  const std::string told = read_file(said);
  CHECK(std::count(told.begin(), told.end(), '\n') == 12);
  CHECK(told.starts_with("--core --runs 3 --json"));
}

TEST_CASE("ab: a commit is built with the options of this tree's build, and again with others") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("tree/bench"));
  std::filesystem::copy(WEFT_SOURCE_ROOT "/bench/ab", folder.path("tree/bench/ab"));
  const auto set_up = [&](const std::string& gpu) {
    folder.file("tree/build/build.ninja", "");
    folder.file("tree/build/meson-private/cmd_line.txt",
                "[options]\ngpu = " + gpu + "\nbench = true\n\n[properties]\n");
  };
  folder.program("bin/git", "case $3 in rev-parse) echo 284be85;; *) tar -c -T /dev/null;; esac\n");
  folder.program("bin/meson", "echo \"$4 $5\" >>'" + folder.path("said") +
                                  "'\nmkdir -p $2/meson-private\n: >$2/build.ninja\n"
                                  "(echo '[options]'; for word in $4 $5; do echo ${word#-D}; done) "
                                  ">$2/meson-private/cmd_line.txt\n");
  folder.program("bin/ninja",
                 "mkdir -p $2/bench\ncp '" + benchmark(folder, "program", "1") + "' $2/$3\n");
  const auto compared = [&] {
    const ProgramRun run =
        run_program("env", {"PATH=" + folder.path("bin") + ":" + std::getenv("PATH"),
                            folder.path("tree/bench/ab"), "--runs", "6", "284be85"});
    CHECK_MESSAGE(run.status == 0, run.err);
    return read_file(folder.path("said"));
  };
  set_up("none");
  CHECK(compared() == "-Dgpu=none -Dbench=true\n");
  CHECK(compared() == "-Dgpu=none -Dbench=true\n");  // it is there
  set_up("emulated");
  CHECK(compared() == "-Dgpu=none -Dbench=true\n-Dgpu=emulated -Dbench=true\n");
}

TEST_CASE("ab: what it cannot compare") {
  const TemporaryFolder folder;
  const std::string program = benchmark(folder, "program", "1");
  CHECK(ab(program, program, {"--runs", "5"}).status == 2);
  const std::string silent = folder.program("silent", "");
  CHECK(contains(ab(silent, program).err, "measured nothing"));
  // It builds nothing before it knows the commit.
  folder.program("ninja", "exit 1\n");
  const ProgramRun unknown =
      run_program("env", {"PATH=" + folder.path() + ":" + std::getenv("PATH"),
                          WEFT_SOURCE_ROOT "/bench/ab", "no-such-commit"});
  CHECK(contains(unknown.err, "there is no commit 'no-such-commit'"));
  CHECK(unknown.status == 1);
}

}  // TEST_SUITE("bench")

}  // namespace
