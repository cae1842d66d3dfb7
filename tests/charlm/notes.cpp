// What a run prints on stderr, and what `sample` writes to a terminal.
#include <nlohmann/json.hpp>

#include "apps/command_line/printable.h"
#include "apps/command_line/progress.h"
#include "doctest/doctest.h"
#include "tests/charlm/tiny.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

const Words smallest = {"--width", "8", "--heads", "1", "--depth", "1", "--length", "8", "--batch",
                        "1", "--validation-batches", "1", "--test-batches", "1", "--split",
                        "98/1.9/0.1"};

std::string in_one_go(const std::string& text) { return printable(text); }

std::string byte_by_byte(const std::string& text) {
  PrintableText printed;
  std::string shown;
  for (const char c : text) shown += printed.add({&c, 1});
  return shown + printed.rest();
}

}  // namespace

TEST_SUITE("charlm") {

TEST_CASE("printable: text stays, and what a terminal obeys or cannot read is escaped") {
  for (const auto& shown : {in_one_go, byte_by_byte}) {
    CHECK(shown("a line\n\tand Wörter, 水, 𝄞") == "a line\n\tand Wörter, 水, 𝄞");
    CHECK(shown("\x1b[2J\r\x07\x7f") == "\\x1b[2J\\x0d\\x07\\x7f");
    CHECK(shown("\xc2\x9b") == "\\xc2\\x9b");            // a control character beyond ASCII
    CHECK(shown("\xff a \xc3 b") == "\\xff a \\xc3 b");  // no UTF-8
    CHECK(shown("\xc0\x80\xed\xa0\x80") == "\\xc0\\x80\\xed\\xa0\\x80");  // overlong, a surrogate
    CHECK(shown("end \xe6\xb0") == "end \\xe6\\xb0");                     // cut short
    CHECK(shown(std::string("\0", 1)) == "\\x00");
  }
}

TEST_CASE("sample: a terminal gets no control bytes, a file gets every byte") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 40000; ++i) text += static_cast<char>(i % 256);
  const std::string run = folder.path("run");
  const ProgramRun trained = app("charlm", smallest + Words{"--data", folder.file("text", text),
                                                            "--steps", "1", "--out", run});
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  const Words sample = {"sample", "--checkpoint", run, "--tokens", "200", "--prompt", "\x1b[31m"};
  const ProgramRun raw = app("charlm", sample);
  REQUIRE_MESSAGE(raw.status == 0, raw.err);
  CHECK(raw.out.size() == 5 + 200 + 1);
  std::string command = quoted(built("apps/charlm"));
  for (const std::string& word : sample) command += " " + quoted(word);
  const ProgramRun shown = run_program("script", {"-qec", command, "/dev/null"});
  if (shown.status == 127) {
    MESSAGE("skipped: there is no program `script` for a terminal");
    return;
  }
  REQUIRE(shown.status == 0);
  std::string lines = shown.out;  // a terminal's line ends, and stderr after the text
  lines.erase(std::remove(lines.begin(), lines.end(), '\r'), lines.end());
  CHECK(lines.starts_with(printable(raw.out)));
  CHECK(lines.starts_with("\\x1b[31m"));
  CHECK(printable(raw.out) != raw.out);
}

TEST_CASE("notes: a warm-up that the run does not finish" * not_sanitized()) {
  const ProgramRun cut = app("charlm", smallest + Words{"--steps", "4", "--warmup", "8"});
  CHECK(cut.err ==
        "note: the warm-up of 8 steps is longer than the run, of 4: the learning rate "
        "reaches 0.005, not 0.01\n");
  CHECK(app("charlm", smallest + Words{"--steps", "4", "--warmup", "4"}).err.empty());
  CHECK(app("charlm", smallest + Words{"--steps", "4", "--warmup", "8", "--quiet"}).err.empty());
  CHECK(contains(app("vision", {"--steps", "4", "--layers", "1", "--dry-run"}).err,
                 "note: the warm-up of 100 steps"));
}

TEST_CASE("notes: a preset whose model other options changed" * not_sanitized()) {
  const Words own = {"--data", "builtin", "--steps", "1", "--dry-run"};
  const Words preset = own + Words{"--preset", "text8-full-conv"};
  const ProgramRun as_it_is = app("charlm", preset + Words{"--lr", "0.5", "--batch", "2"});
  CHECK_MESSAGE(as_it_is.err.empty(), as_it_is.err);
  CHECK(contains(as_it_is.out, "model  text8-full-conv: full attention, causal convolution"));
  const ProgramRun other =
      app("charlm", preset + Words{"--encoding", "position", "--width", "48", "--batch", "2"});
  CHECK(other.err ==
        "note: the model differs from preset text8-full-conv: encoding position (preset: "
        "conv), width 48 (preset: 64)\n");
  CHECK(contains(other.out, "model  text8-full-conv, changed: full attention, trained positions"));
  const ProgramRun words =
      app("wordlm", own + Words{"--preset", "wikitext2-full-conv", "--batch", "1", "--depth", "1"});
  CHECK(words.err ==
        "note: the model differs from preset wikitext2-full-conv: depth 1 (preset: 5)\n");
  const ProgramRun pictures =
      app("vision", own + Words{"--preset", "cifar10-csp", "--dataset", "builtin", "--batch", "1",
                                "--layers", "1", "--validation", "10"});
  CHECK(pictures.err == "note: the model differs from preset cifar10-csp: layers 1 (preset: 6)\n");
}

TEST_CASE("notes: how long a run of hours takes, by its first steps" * not_sanitized()) {
  const TemporaryFolder folder;
  // It is ended once the note is there, however long a busy machine takes to begin. Without
  // --foreground, timeout sends the signal twice: the second may kill, which the shell tells.
  const Words until_note = {
      "-c",
      "timeout --foreground 60 \"$@\" 2>\"$0\" & while kill -0 $! 2>/dev/null && "
      "! grep -qs 'will take' \"$0\"; do sleep 0.1; done; kill -TERM $!; wait $!; cat \"$0\" >&2",
      folder.path("said"),
      built("apps/charlm"),
      "--steps",
      "1000000000"};
  const ProgramRun run = run_program("/bin/sh", until_note + smallest);
  CHECK(contains(run.err, "note: the 999,999,989 steps will take about "));
  CHECK((contains(run.err, " hours (estimated from ") ||
         contains(run.err, " days (estimated from ")));
  CHECK_MESSAGE(std::count(run.err.begin(), run.err.end(), '\n') == 1, run.err);
  CHECK(app("charlm", Words{"--steps", "30"} + smallest).err.find("will take") ==
        std::string::npos);
}

TEST_CASE("dry run: the time of all steps by the time of one, and bytes in MiB") {
  const Words words = Words{"--steps", "1000000000", "--dry-run"} + smallest;
  const ProgramRun run = app("charlm", words);
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK((contains(run.out, " hours for these") || contains(run.out, " days for these")));
  for (const char* what : {"weights", "gradients", "optimizer", "activations", "peak"}) {
    const std::size_t begin = run.out.find(std::string("\n") + what);
    REQUIRE(begin != std::string::npos);
    CHECK(contains(run.out.substr(begin, run.out.find('\n', begin + 1) - begin), " MiB"));
  }
  const auto cost = nlohmann::json::parse(app("charlm", words + Words{"--json-lines"}).out);
  CHECK(cost["step_seconds"] > 0);
  CHECK(cost["step_seconds"] < 10);
}

TEST_CASE("notes: a duration as one says it") {
  CHECK(rough_duration(40) == "40 seconds");
  CHECK(rough_duration(720) == "12 minutes");
  CHECK(rough_duration(14.6 * 3600) == "14.6 hours");
  CHECK(rough_duration(3.2 * 86400) == "3.2 days");
}

}  // TEST_SUITE("charlm")
