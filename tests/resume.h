// A training that is killed and resumed against one that is not.
#pragma once

#include <csignal>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/json_lines.h"
#include "tests/program.h"
#include "tests/sanitized.h"

namespace weft {

// The log without times, which are never the same.
inline std::vector<nlohmann::json> without_times(const std::string& log) {
  std::vector<nlohmann::json> all = lines(log);
  for (nlohmann::json& line : all) {
    for (const char* key : {"elapsed", "remaining", "tokens_per_second"}) line.erase(key);
  }
  return all;
}

// The files of a run that are functions of its settings, as bytes.
inline std::vector<std::string> kept_bytes(const std::string& run) {
  std::vector<std::string> all = {read_file(run + "/best.safetensors"),
                                  read_file(run + "/last.safetensors"),
                                  read_file(run + "/result.json")};
  std::set<std::string> checkpoints;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    if (entry.is_directory()) checkpoints.insert(entry.path().filename());
  }
  for (const std::string& name : checkpoints) {
    all.push_back(name + read_file(run + "/" + name + "/state.safetensors"));
  }
  return all;
}

// Trains with `words` in one run with one thread; then with two, killed as soon as there is a
// checkpoint of a step and `kills` times more after an increasing time, and resumed each time.
// Checks that both have the same bits and the same log. `folder` is empty.
inline void check_resume(const std::string& program, const Words& words, const std::string& folder,
                         int kills) {
  const std::string straight = folder + "/straight", killed = folder + "/killed";
  const ProgramRun whole = run_program(program, words + Words{"--out", straight, "--threads", "1"});
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  const Words parts = words + Words{"--out", killed, "--threads", "2"};
  const Words until_checkpoint = {
      "-c",
      "\"$@\" & while kill -0 $! && ! ls \"$0\"/step-*[1-9]*/manifest.json; do sleep 0.01; done "
      ">/dev/null 2>&1; kill -KILL $! && wait $!",
      killed, program};
  const ProgramRun first = run_program("/bin/sh", until_checkpoint + parts);
  REQUIRE_MESSAGE(first.status == 128 + SIGKILL, first.err);
  const auto go_on = [&](double seconds) {
    return run_program(
        "timeout", Words{"--foreground", "-s", "KILL", std::to_string(seconds), program} + parts +
                       Words{"--resume"});
  };
  for (int i = 1; i <= kills; ++i) go_on(i * (sanitized ? 1.5 : 0.1));
  const ProgramRun last = go_on(0);  // without a kill
  REQUIRE_MESSAGE(last.status == 0, last.err);
  CHECK(kept_bytes(straight) == kept_bytes(killed));
  const std::string log = read_file(killed + "/metrics.jsonl");
  CHECK(without_times(read_file(straight + "/metrics.jsonl")) == without_times(log));

  // A finished training stays unchanged.
  const ProgramRun again = run_program(program, parts + Words{"--resume"});
  CHECK(again.status == 0);
  CHECK(contains(again.out, "nothing is left to do"));
  CHECK(read_file(killed + "/metrics.jsonl") == log);
}

}  // namespace weft
