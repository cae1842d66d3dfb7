// The memory that --dry-run prints compared with what a training takes.
#include <cerrno>

#include <fcntl.h>
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
  if (sanitized) {
    MESSAGE("skipped: the sanitizers keep what is freed");
    return;
  }
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

}  // TEST_SUITE("tools")

}  // namespace
