// What --dry-run and --profile measure, and what is said when memory runs out.
#include <cerrno>
#include <filesystem>
#include <limits>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;
using nlohmann::json;

namespace {

// The most bytes that the program held, by the system's account of it.
double peak_of(const std::string& program, const Words& words) {
  std::vector<char*> line = {const_cast<char*>(program.c_str())};
  for (const std::string& word : words) line.push_back(const_cast<char*>(word.c_str()));
  line.push_back(nullptr);
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int nowhere = ::open("/dev/null", O_RDWR);
    for (const int stream : {0, 1, 2}) ::dup2(nowhere, stream);
    ::execv(program.c_str(), line.data());
    ::_exit(127);
  }
  int status = 0;
  struct rusage usage {};
  while (::wait4(child, &status, 0, &usage) < 0) REQUIRE(errno == EINTR);
  CHECK(status == 0);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

TEST_SUITE("tools") {

// Without data, best weights, validation and checkpoints it would be at most half of it.
TEST_CASE("dry run: what it says is within 10 % of what a training takes") {
  if (skipped_because_sanitizers("keep what is freed")) return;
  const std::pair<std::string, Words> runs[] = {
      {"charlm", {"--validation-batches", "3", "--test-batches", "3", "--split", "90/9/1"}},
      {"charlm",
       {"--batch", "64", "--length", "256", "--validation-batches", "2", "--test-batches", "2",
        "--split", "90/9/1"}},
      {"wordlm", {"--width", "256", "--batch", "8"}},
      {"vision", {"--validation", "300"}},
  };
  for (const auto& [app, words] : runs) {
    const std::string program = built("apps/" + app);
    CAPTURE(app + " " + words.front());
    const TemporaryFolder folder;
    const Words line = words + Words{"--threads", "1", "--steps", "4", "--out", folder.path("run")};
    const ProgramRun dry = run_program(program, line + Words{"--dry-run", "--json-lines"});
    REQUIRE_MESSAGE(dry.status == 0, dry.err);
    const json bytes = json::parse(dry.out)["process_bytes"];
    const double said = bytes["peak"], start = bytes["program"], taken = peak_of(program, line);
    CHECK(said / taken == doctest::Approx(1).epsilon(0.1));
    CHECK((said - start) / (taken - start) == doctest::Approx(1).epsilon(0.1));
    double sum = 0;
    for (const char* part : {"program", "data", "steps", "validation", "checkpoint"}) {
      sum += bytes[part].get<double>();
    }
    CHECK(sum == said);
  }
}

TEST_CASE("profile: calls are counted, times add up to the step, and nothing is written") {
  const TemporaryFolder folder;
  const Words words = {"--preset", "text8-full-conv", "--batch",          "4",        "--threads",
                       "1",        "--out",           folder.path("run"), "--profile"};
  const auto profiled = [&](const Words& more) {
    const ProgramRun run = app("charlm", words + more + Words{"--json-lines"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    CHECK_FALSE(std::filesystem::exists(folder.path("run")));
    return json::parse(run.out);
  };
  const auto op = [](const json& profile, const std::string& name) {
    for (const json& one : profile["ops"]) {
      if (one["op"] == name) return one;
    }
    FAIL("no op " << name);
    return json();
  };
  const json profile = profiled({});
  double sum = profile["batch_ms"].get<double>() + profile["optimizer_ms"].get<double>() +
               profile["other_ms"].get<double>();
  double last = std::numeric_limits<double>::infinity();
  for (const json& one : profile["ops"]) {
    const double own = one["forward_ms"].get<double>() + one["backward_ms"].get<double>();
    CHECK(own <= last);
    last = own;
    sum += own;
  }
  CHECK(sum == doctest::Approx(profile["step_ms"].get<double>()).epsilon(0.01));
  // Five depths of one block: attention, and layer norms behind it and behind the feed-forward map.
  CHECK(op(profile, "full")["calls"] == 5);
  CHECK(op(profile, "layer_norm")["calls"] == 10);
  CHECK(op(profile, "full")["result_bytes"] == 5 * 4 * 128 * 64 * 4);
  CHECK(op(profile, "full")["backward_ms"] > 0);
  CHECK(op(profile, "reshape")["result_bytes"] == 0);  // views
  const json again = profiled({"--recompute"});
  CHECK(op(again, "full")["calls"] == 10);
  CHECK(op(again, "causal_conv1d")["calls"] == 5);  // is no part of the block
  const json sharded = profiled({"--shards", "2"});
  CHECK(op(sharded, "full")["calls"] == 10);

  const ProgramRun table = app("charlm", words);
  REQUIRE_MESSAGE(table.status == 0, table.err);
  CHECK(contains(table.out, "keep   nothing; this is a profile\n"));
  CHECK(contains(table.out, "calls  forward, ms  backward, ms"));
  CHECK(contains(table.out, "ms when ops are not watched\n"));
  check_refused(app("charlm", words + Words{"--dry-run"}), "--dry-run excludes --profile");
}

// A shell's limit on address space takes the place of a machine with little memory.
TEST_CASE("out of memory: the number of shards that is named fits, and a quarter of it does not") {
  if (skipped_because_sanitizers("reserve more addresses than any limit")) return;
  const auto limited = [](const std::string& more) {
    return shell("ulimit -v 600000; exec " + quoted(built("apps/charlm")) +
                 " --preset text8-full-conv --batch 4096 --steps 1 --validation-batches 1 "
                 "--test-batches 1 --split 98/1/1 " +
                 more);
  };
  const ProgramRun run = limited("");
  CHECK(run.status == 2);
  CHECK(contains(run.err, "charlm: allocator: the CPU has no "));
  CHECK(contains(run.err, ": [4096,128,64], "));
  CHECK(contains(run.err, " at the peak of a step (measured)\n"));
  const std::string begin = "; --shards ";
  const std::size_t at = run.err.find(begin);
  REQUIRE_MESSAGE(at != std::string::npos, run.err);
  const int shards = std::stoi(run.err.substr(at + begin.size()));
  CHECK(contains(run.err, fmt::format("{} fits: with {} of the 4096 examples at a time, ", shards,
                                      4096 / shards)));
  CHECK(limited(fmt::format("--shards {}", shards / 4)).status == 2);
  const ProgramRun fitting = limited(fmt::format("--shards {}", shards));
  CHECK_MESSAGE(fitting.status == 0, fitting.err);
  const TemporaryFolder folder;
  const std::string text = folder.file("long.txt", std::string(3'500'000, 'a'));
  const ProgramRun none =
      shell("ulimit -v 600000; exec " + quoted(built("apps/charlm")) +
            " --batch 2 --length 1048576 --split 34/33/33 --steps 1 --data " + quoted(text));
  CHECK(contains(none.err, "not even one example at a time fits\n"));
}

}  // TEST_SUITE("tools")

}  // namespace
