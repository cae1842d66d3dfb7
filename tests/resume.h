// Training that is killed and goes on against training that is not.
#pragma once

#include <algorithm>
#include <set>
#include <utility>

#include "tests/json_lines.h"
#include "tests/program.h"

namespace weft {

// What the log says, but for times, which are never the same.
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
  std::set<std::string> states;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    if (entry.is_directory()) states.insert(entry.path() / "state.safetensors");
  }
  for (const std::string& file : states) all.push_back(file + read_file(file));
  for (std::string& bytes : all) {
    const std::size_t place = bytes.find(run);
    if (place == 0) bytes.erase(0, run.size());
  }
  return all;
}

// Trains by `words` at one go with one thread; then with two, killed `kills` times after a time
// that grows, and resumed each time. Checks that both left the same bits and the same log. `folder`
// is empty.
inline void check_resume(const std::string& program, const Words& words, const std::string& folder,
                         int kills) {
  const std::string straight = folder + "/straight", killed = folder + "/killed";
  const ProgramRun whole = run_program(program, words + Words{"--out", straight, "--threads", "1"});
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  const Words parts = words + Words{"--out", killed, "--threads", "2"};
  double seconds = 0.1;
  for (int i = 0; i < kills; ++i, seconds += 0.1) {
    const bool begun = std::filesystem::exists(killed + "/last.safetensors");
    run_program("timeout", Words{"-s", "KILL", std::to_string(seconds), program} + parts +
                               Words{begun ? "--resume" : "--force"});
  }
  const ProgramRun last = run_program(program, parts + Words{"--resume"});
  REQUIRE_MESSAGE(last.status == 0, last.err);
  CHECK(kept_bytes(straight) == kept_bytes(killed));
  const std::string log = read_file(killed + "/metrics.jsonl");
  CHECK(without_times(read_file(straight + "/metrics.jsonl")) == without_times(log));

  // What is over stays as it is.
  const ProgramRun again = run_program(program, parts + Words{"--resume"});
  CHECK(again.status == 0);
  CHECK(contains(again.out, "nothing is left to do"));
  CHECK(read_file(killed + "/metrics.jsonl") == log);
}

}  // namespace weft
