// Trainings on several processes leave the bits of one.
#include "apps/training/train.h"
#include "ops/dropout/dropout.h"
#include "tests/ranks/started.h"
#include "tests/resume.h"

using namespace weft;

namespace {

const Words small_language = {"--width",
                              "16",
                              "--heads",
                              "2",
                              "--depth",
                              "2",
                              "--length",
                              "24",
                              "--residual-dropout",
                              "0.1",
                              "--report-steps",
                              "2",
                              "--steps",
                              "4"};

// What a run on so many ranks keeps, and one alone, which has not the words `of_several`.
void check_same(const std::string& program, const Words& words, const std::vector<int>& counts,
                const Words& of_several = {}) {
  const TemporaryFolder folder;
  const std::string path = built("apps/" + program), alone = folder.path("alone");
  const ProgramRun one = run_program(path, words + Words{"--out", alone});
  REQUIRE_MESSAGE(one.status == 0, one.err);
  for (const int count : counts) {
    CAPTURE(count);
    const std::string out = folder.path("on-" + std::to_string(count));
    const ProgramRun several = run_ranks(count, path, words + of_several + Words{"--out", out});
    REQUIRE_MESSAGE(several.status == 0, several.err);
    CHECK(kept_bytes(out) == kept_bytes(alone));
    CHECK(without_times(read_file(out + "/metrics.jsonl")) ==
          without_times(read_file(alone + "/metrics.jsonl")));
    // One rank alone prints.
    CHECK(several.out.find("keep ") != std::string::npos);
    CHECK(several.out.find("keep ") == several.out.rfind("keep "));
    CHECK(several.err.find("note: ") == several.err.rfind("note: "));
  }
}

TEST_SUITE("ranks") {

TEST_CASE("charlm: six shards on two and three ranks, the same bits as on one") {
  if (!mpi_is_there()) return;
  check_same("charlm",
             small_language + Words{"--batch", "12", "--shards", "6", "--epoch-steps", "2",
                                    "--validation-batches", "5", "--test-batches", "3"},
             {2, 3});
}

TEST_CASE("wordlm: four shards on two and four ranks, the same bits as on one") {
  if (!mpi_is_there()) return;
  check_same("wordlm", small_language + Words{"--batch", "8", "--shards", "4"}, {2, 4});
}

TEST_CASE("vision: four shards on two and four ranks, the same bits as on one") {
  if (!mpi_is_there()) return;
  check_same("vision",
             {"--batch", "8", "--shards", "4", "--width", "16", "--heads", "2", "--layers", "1",
              "--hidden", "16", "--patch", "8", "--validation", "20", "--steps", "3"},
             {2, 4});
}

// A short text spares the emulated device a long test.
struct OnDevices {
  TemporaryFolder folder;
  std::string text = folder.file("text", lines_of_text());
  Words model = {"--device", "cuda", "--width",  "8",  "--heads", "2",
                 "--depth",  "1",    "--length", "16", "--batch", "4"};
  // Of four steps two run before one is captured, and two are its replays.
  Words charlm = model + Words{"--data",
                               text,
                               "--shards",
                               "4",
                               "--steps",
                               "4",
                               "--residual-dropout",
                               "0.1",
                               "--report-steps",
                               "2",
                               "--validation-batches",
                               "1",
                               "--test-batches",
                               "1"};

  static std::string lines_of_text() {
    std::string all;
    for (int i = 0; i < 400; ++i) all += "the cat sat on the mat " + std::to_string(i * i) + "\n";
    return all;
  }
};

TEST_CASE("charlm on a device each: captured steps on two and four ranks, the bits of one") {
  if (!mpi_and_devices_are_there()) return;
  const OnDevices run;
  check_same("charlm", run.charlm, {2, 4});
}

TEST_CASE("charlm on a device each: queued steps, and steps at once, the bits of one's captured") {
  if (!mpi_and_devices_are_there()) return;
  const OnDevices run;
  check_same("charlm", run.charlm, {2}, {"--no-graph"});
  check_same("charlm", run.charlm, {2}, {"--detect-anomaly"});
}

TEST_CASE("random numbers are those of the example's place in the batch") {
  const Tensor ones = Tensor::full({12, 5, 20}, 1, DType::f64);
  const auto dropped = [](Context context, const Tensor& x) {
    return dropout(x, 0.5, context.random.next()).value();
  };
  const Tensor whole = dropped(Context(true, 5, 7), ones);
  std::set<std::vector<double>> shards;
  for (i64 first = 0; first < 12; first += 3) {
    const Task::Step step{.number = 7, .first_example = first};
    const Tensor own =
        dropped(step.context(TrainingSettings{.seed = 5}), ones.slice(0, first, first + 3));
    CHECK(same_bits(own, whole.slice(0, first, first + 3)));
    shards.insert(own.to_vector<double>());
  }
  CHECK(shards.size() == 4);
}

// Four ranks, then two, and one alone; each rank carries its rows of the memory from step to step.
void check_goes_on(const Words& words) {
  const TemporaryFolder folder;
  const std::string path = built("apps/wordlm");
  const std::string alone = folder.path("alone"), parts = folder.path("parts");
  const Words all = words + Words{"--shards", "4",  "--attention",        "transformer-xl",
                                  "--memory", "16", "--checkpoint-steps", "1"};
  const ProgramRun one = run_program(path, all + Words{"--out", alone});
  REQUIRE_MESSAGE(one.status == 0, one.err);
  REQUIRE(run_ranks(4, path, all + Words{"--out", parts}).status == 0);
  std::filesystem::remove_all(parts + "/step-0000000004-validated");
  std::filesystem::remove(parts + "/result.json");
  const ProgramRun resumed = run_ranks(2, path, all + Words{"--out", parts, "--resume"});
  REQUIRE_MESSAGE(resumed.status == 0, resumed.err);
  CHECK(contains(resumed.out, "resume after step 3"));
  CHECK_FALSE(contains(resumed.out, "\x1b"));  // although mpirun gives the ranks a terminal
  CHECK(kept_bytes(parts) == kept_bytes(alone));
}

TEST_CASE("a run goes on with another number of ranks, and with its memory") {
  if (mpi_is_there()) check_goes_on(small_language + Words{"--batch", "8"});
}

TEST_CASE("a run on a device each goes on with another number of ranks, and with its memory") {
  if (!mpi_and_devices_are_there()) return;
  const OnDevices run;
  check_goes_on(run.model + Words{"--data", run.text, "--steps", "4"});
}

// The losses of the first steps with one shard and with four.
void check_losses_by_shards(const std::string& program, const Words& words) {
  const TemporaryFolder folder;
  std::vector<double> losses[2];
  for (const int shards : {1, 4}) {
    const std::string out = folder.path(std::to_string(shards));
    const ProgramRun run =
        app(program, words + Words{"--shards", std::to_string(shards), "--out", out});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    losses[shards > 1] = logged(out, "train", "loss");
  }
  REQUIRE(losses[0].size() == 4);
  REQUIRE(losses[1].size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(losses[0][i] == doctest::Approx(losses[1][i]).epsilon(2e-6));
  }
}

TEST_CASE("shards on one process: another sum of the same gradients, and the same bits resumed") {
  const Words words = {"--width",
                       "16",
                       "--heads",
                       "2",
                       "--length",
                       "24",
                       "--steps",
                       "4",
                       "--batch",
                       "8",
                       "--epoch-steps",
                       "2",
                       "--validation-batches",
                       "2",
                       "--test-batches",
                       "2",
                       "--report-steps",
                       "1",
                       "--dropout",
                       "0.3"};
  check_losses_by_shards("charlm", words);
  check_losses_by_shards(
      "vision", {"--batch",        "8",  "--width",   "16", "--heads",      "2",  "--layers", "1",
                 "--hidden",       "16", "--patch",   "8",  "--validation", "20", "--steps",  "4",
                 "--report-steps", "1",  "--dropout", "0.3"});
  const TemporaryFolder folder;
  const std::string path = built("apps/charlm");
  check_resume(path, words + Words{"--shards", "4", "--steps", "40", "--checkpoint-steps", "1"},
               folder.path("resumed"), 1);
}

}  // TEST_SUITE("ranks")
}  // namespace
