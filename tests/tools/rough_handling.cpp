// Rough handling of programs: early signals, pipes instead of files, words that no terminal should
// print, standard streams that are closed or full.
#include <filesystem>

#include <sys/stat.h>

#include "tests/charlm/tiny.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

const Words four_steps =
    tiny_model + Words{"--steps", "4", "--epoch-steps", "2", "--report-steps", "1"};

// run_program() with redirections of the shell, such as "2>&-", which closes stderr.
ProgramRun redirected(const std::string& program, const Words& words, const std::string& how) {
  std::string command = quoted(program);
  for (const std::string& word : words) command += " " + quoted(word);
  return shell(command + " " + how);
}

TEST_SUITE("tools") {

TEST_CASE("SIGUSR1 in the first moments of a program is a checkpoint after the first step") {
  if (skipped_because_sanitizers("want to be the first library")) return;
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  const auto with_signal = [&](const std::string& program, const Words& words) {
    return run_program(
        "/usr/bin/env",
        Words{"LD_PRELOAD=" + built("tests/libearly_signal.so"), built("apps/" + program)} + words);
  };
  const ProgramRun run = with_signal("charlm", four_steps + Words{"--out", out});
  CHECK_MESSAGE(run.status == 0, run.err);
  CHECK(contains(run.out, "saved after step 1"));
  CHECK(with_signal("wordlm", {"info", "--preset", "wikitext2-full-position"}).status == 0);
  CHECK(with_signal("vision", {"info"}).status == 0);
}

TEST_CASE("a pipe in the place of a file is refused, and holds nobody up") {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  const auto charlm = [&](const Words& more) {
    return run_program("/usr/bin/timeout",
                       Words{"60", built("apps/charlm")} + four_steps + Words{"--out", out} + more);
  };
  const auto make_pipe = [&](const char* name) {
    std::filesystem::remove(out + "/" + name);
    REQUIRE(::mkfifo((out + "/" + name).c_str(), 0600) == 0);
  };
  REQUIRE(charlm({"--steps", "2"}).status == 0);
  for (const char* name : {"metrics.csv", "metrics.jsonl", "result.json"}) {
    CAPTURE(name);
    make_pipe(name);
    const ProgramRun run = charlm({"--resume"});
    CHECK(run.status != 124);  // it would be killed
    if (name == std::string("metrics.csv")) {
      CHECK(run.err == "charlm: " + out + "/metrics.csv: wanted a file, got a pipe; remove it\n");
      std::filesystem::remove(out + "/" + name);
      CHECK(charlm({"--resume"}).status == 0);  // nothing was lost
    }
  }
  make_pipe("last.safetensors.partial");
  make_pipe("metrics.csv");
  CHECK(charlm({"--force"}).status == 0);
}

TEST_CASE("every program says what is wrong in one short line, whatever the words hold") {
  const TemporaryFolder folder;
  const std::string apps = built("apps/");
  const std::string bad = "12\n\x1b[31m\xff" + std::string(5000, 'x');
  const std::pair<std::string, Words> calls[] = {
      {apps + "charlm", {"--lr", bad}},
      {apps + "charlm", {"--encoding", bad}},
      {apps + "charlm", {"--data", bad}},
      {apps + "charlm", {"--" + bad, "1"}},
      {apps + "charlm", {bad}},
      {apps + "charlm",
       {"--config", folder.file("bad.toml", "lr = '" + std::string(5000, 'x') + "'")}},
      {apps + "wordlm", {"--attention", bad}},
      {apps + "wordlm", {"eval", "--checkpoint", bad}},
      {apps + "vision", {"--seeds", bad}},
      {apps + "lra", {"--data", bad}},
      {apps + "zoo", {bad}},
      {apps + "attend", {"--dtype", bad}},
      {apps + "attend", {"--in", bad, "--out", folder.path("out"), "--attention", "full"}},
      {built("bench/attention_bench"), {"--batch", bad}},
      {built("bench/attention_bench"), {"--attention", bad}},
  };
  for (const auto& [program, words] : calls) {
    CAPTURE(program + " " + words.front());
    const ProgramRun run = run_program(program, words);
    check_refused(run, "");
    CHECK(run.err.size() < 2000);
    const std::string text = run.err.substr(0, run.err.size() - 1);
    CHECK(std::none_of(text.begin(), text.end(), [](char c) {
      return static_cast<unsigned char>(c) < ' ' || c == '\x7f' || c == '\xff';
    }));
  }
  CHECK(contains(run_program(apps + "charlm", {"--encoding", bad}).err,
                 "--encoding: there is no '12\\n\\x1b[31m\\xffxxx"));
}

TEST_CASE("every program exits with status 2 for bad input, also if stderr cannot be written") {
  for (const char* program : {"apps/attend", "apps/charlm", "apps/devices", "apps/lra",
                              "apps/vision", "apps/wordlm", "apps/zoo", "bench/attention_bench"}) {
    for (const char* how : {"2>/dev/full", "2>&-"}) {
      CAPTURE(program + std::string(" ") + how);
      CHECK(redirected(built(program), {"--nonsense"}, how).status == 2);
    }
  }
}

TEST_CASE("a note that cannot be written does not end a training") {
  const TemporaryFolder folder;
  const Words words = four_steps + Words{"--out", folder.path("run")};
  REQUIRE(contains(app("charlm", words + Words{"--dry-run"}).err, "note: "));
  CHECK(redirected(built("apps/charlm"), words, "2>/dev/full").status == 0);
  CHECK(std::filesystem::exists(folder.path("run/last.safetensors")));
}

TEST_CASE("what is printed to a closed stream goes into no file of the run") {
  const std::pair<std::string, int> calls[] = {
      {"<&- >&-", 2}, {"<&- 2>&-", 0}, {"<&- >&- 2>&-", 2}};
  for (const auto& [how, status] : calls) {
    CAPTURE(how);
    const TemporaryFolder folder;
    const Words words = four_steps + Words{"--out", folder.path("run")};
    const ProgramRun run = redirected(built("apps/charlm"), words, how);
    CHECK_MESSAGE(run.status == status, run.err);
    CHECK(read_file(folder.path("run/metrics.jsonl")).starts_with("{"));
    CHECK(contains(app("charlm", words + Words{"--resume"}).out, "nothing is left to do"));
  }
}

}  // TEST_SUITE("tools")

}  // namespace
