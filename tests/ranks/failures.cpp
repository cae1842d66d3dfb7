// What ends one rank ends all of them, soon and with one line.
#include "tests/ranks/started.h"
#include "tests/resume.h"

using namespace weft;

namespace {

const std::string charlm = built("apps/charlm");
const Words endless = {"--width",  "8",       "--heads",       "2",       "--depth",        "1",
                       "--length", "16",      "--batch",       "6",       "--shards",       "3",
                       "--steps",  "1000000", "--epoch-steps", "1000000", "--report-steps", "5",
                       "--quiet"};

int lines_of_charlm(const std::string& text) {
  int count = 0;
  for (std::size_t at = text.find("charlm: rank "); at != std::string::npos;
       at = text.find("charlm: rank ", at + 1)) {
    ++count;
  }
  return count;
}

// Seconds after which a program that should end by itself, or start, does not: far more than it
// takes, and less than the 600 after which ranks give each other up.
constexpr double in_the_end = 60;
// How long mpirun waits before it kills the ranks that it told to end, which end by themselves. It
// waits so long, twice, whether or not they have ended.
Words without_killing() { return {"--mca", "odls_base_sigkill_timeout", sanitized ? "15" : "5"}; }

// Three ranks that train, and what they keep.
struct Training {
  TemporaryFolder folder;
  std::string out = folder.path("out");
  Started started;

  explicit Training(const Words& mpirun = {}, const Words& words = {})
      : started(mpirun + Words{"-np", "3", charlm, "--out", out} + endless + words) {
    REQUIRE(Started::until(in_the_end, [&] {
      const std::string log = out + "/metrics.jsonl";
      return started.ranks().size() == 3 && std::filesystem::exists(log) &&
             contains(read_file(log), "\"train\"");
    }));
  }
  // The step of the last whole checkpoint.
  i64 last_saved() const {
    i64 last = -1;
    for (const auto& entry : std::filesystem::directory_iterator(out)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("step-") && std::filesystem::exists(entry.path() / "manifest.json")) {
        last = std::max(last, i64{std::stoll(name.substr(5))});
      }
    }
    return last;
  }
};

TEST_SUITE("ranks") {

void check_killed(const Words& words) {
  Training training(without_killing(), words);
  const int killed = training.started.ranks().at(1);
  ::kill(killed, SIGKILL);
  const ProgramRun run = training.started.wait(in_the_end);
  CHECK(run.status > 0);
  CHECK_MESSAGE(contains(run.err, "rank 1, process " + std::to_string(killed) + ", has ended"),
                run.err);
  CHECK_MESSAGE(lines_of_charlm(run.err) == 1, run.err);
  CHECK(Started::until(5, [&] { return training.started.ranks().empty(); }));
}

TEST_CASE("a rank that is killed ends all, with one line that names it") {
  if (mpi_is_there()) check_killed({});
}

TEST_CASE("a rank with a device that is killed ends all, with one line that names it") {
  if (mpi_and_devices_are_there()) check_killed({"--device", "cuda"});
}

TEST_CASE("SIGTERM to mpirun leaves a checkpoint, with which another number of ranks goes on") {
  if (!mpi_is_there()) return;
  Training training(without_killing());
  ::kill(training.started.process(), SIGTERM);
  const ProgramRun run = training.started.wait(in_the_end);
  CHECK(run.status > 0);
  const i64 step = training.last_saved();
  REQUIRE(step > 0);
  const std::string more = std::to_string(step + 3);
  const ProgramRun resumed =
      run_program(charlm, endless + Words{"--out", training.out, "--resume", "--steps", more});
  CHECK_MESSAGE(resumed.status == 0, resumed.err);
  CHECK(training.last_saved() == step + 3);
}

TEST_CASE("a signal while the test is scored ends all ranks, with how to resume") {
  if (!mpi_is_there()) return;
  for (const int rank : {0, 1, 2}) {
    CAPTURE(rank);
    Training training({}, {"--steps", "5", "--test-batches", "1000000"});
    REQUIRE(Started::until(in_the_end, [&] { return training.last_saved() == 5; }));
    ::kill(training.started.ranks().at(rank), SIGTERM);
    const ProgramRun run = training.started.wait(in_the_end);
    CHECK(run.status == 128 + SIGTERM);
    CHECK_MESSAGE(contains(run.err, "interrupted before the test was scored; to resume:"), run.err);
    CHECK_MESSAGE(contains(run.err, "--out " + training.out), run.err);
    CHECK(lines_of_charlm(run.err) == 0);
  }
}

void check_signalled(const Words& words) {
  Training training({}, words);
  ::kill(training.started.ranks().at(2), SIGINT);
  const ProgramRun run = training.started.wait(in_the_end);
  CHECK(run.status == 128 + SIGINT);
  CHECK(training.last_saved() > 0);
  CHECK_MESSAGE(lines_of_charlm(run.err) == 0, run.err);
}

TEST_CASE("a signal to one rank ends all behind the same step") {
  if (mpi_is_there()) check_signalled({});
}

TEST_CASE("a signal to one rank with a device ends all behind the same step") {
  if (mpi_and_devices_are_there()) check_signalled({"--device", "cuda"});
}

TEST_CASE("a rank does not choose its device") {
  if (!mpi_and_devices_are_there()) return;
  const ProgramRun run =
      run_ranks(2, charlm, endless + Words{"--shards", "2", "--device", "cuda:0"});
  CHECK(run.status == 2);
  CHECK_MESSAGE(
      contains(run.err, "--device cuda:0: each of several ranks takes a device of its own"),
      run.err);
}

TEST_CASE("SIGUSR1 to one rank has a checkpoint written") {
  if (!mpi_is_there()) return;
  Training training;
  ::kill(training.started.ranks().at(1), SIGUSR1);
  CHECK(Started::until(5, [&] { return training.last_saved() > 0; }));
}

TEST_CASE("a rank that does not answer is named after --timeout") {
  if (!mpi_is_there()) return;
  Training training({}, {"--timeout", "5"});  // longer than a busy machine keeps a rank waiting
  ::kill(training.started.ranks().at(2), SIGSTOP);
  const ProgramRun run = training.started.wait(in_the_end);
  CHECK(run.status > 0);
  CHECK_MESSAGE(contains(run.err, "rank 2 does not answer; --timeout is"), run.err);
  CHECK_MESSAGE(lines_of_charlm(run.err) == 1, run.err);
}

TEST_CASE("ranks with other settings, other data or too few shards are refused") {
  if (!mpi_is_there()) return;
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the cat sat on the mat " + std::to_string(i * i);
  const std::string data = folder.file("one.txt", text), other = folder.file("two.txt", text + "!");
  const auto refused = [&](const Words& first, const Words& second, const std::string& part) {
    Words words = Words{"-np", "1", charlm} + endless + first;
    words = words + Words{":", "-np", "1", charlm} + endless + second;
    const ProgramRun run = Started(words).wait(in_the_end);
    CHECK(run.status == 2);
    CHECK_MESSAGE(contains(run.err, part), run.err);
    CHECK_MESSAGE(lines_of_charlm(run.err) == 1, run.err);
  };
  const Words two = {"--shards", "2"};
  refused(two, two + Words{"--lr", "0.02"}, "'--lr' is not the same on ranks 0 and 1");
  refused(two + Words{"--data", data}, two + Words{"--data", other},
          "is not the same on ranks 0 and 1");
  refused({}, {}, "--shards: 2 ranks want a number of shards that they divide evenly, got 3");
  refused(two, two + Words{"--data", folder.path("none")}, "rank 1: ");
}

TEST_CASE("a value that is not finite ends all ranks with status 4, and the rank is named") {
  if (!mpi_is_there()) return;
  const ProgramRun run = run_ranks(
      3, charlm, {"--width",     "8",   "--heads",  "2", "--depth",  "1",  "--length", "16",
                  "--batch",     "6",   "--shards", "3", "--steps",  "50", "--lr",     "1e5",
                  "--optimizer", "sgd", "--clip",   "0", "--warmup", "0"});
  CHECK(run.status == 4);
  CHECK_MESSAGE(contains(run.out, "is not finite, on rank "), run.out);
  CHECK_MESSAGE(contains(run.out, "the training diverged to values that are not finite"), run.out);
}

}  // TEST_SUITE("ranks")
}  // namespace
