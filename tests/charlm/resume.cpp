// Checkpoints to resume from: what they hold, when they are written, and the handling of damage.
#include <csignal>
#include <filesystem>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "apps/training/saved_training.h"
#include "apps/training/training_state.h"
#include "doctest/doctest.h"
#include "tests/charlm/tiny.h"
#include "tests/charlm/toy.h"
#include "tests/check.h"
#include "tests/files.h"
#include "tests/numbers.h"
#include "tests/resume.h"
#include "tests/sanitized.h"

using namespace weft;

namespace {

// Seven steps of Adam in epochs of two, the second one the best; its batches are a function of the
// step, one of which is skipped.
struct ToyRun {
  Toy toy;
  std::map<std::string, double> notes;

  explicit ToyRun(const Way& way) : toy(way) {
    toy.options.steps = 7;
    toy.options.report_steps = 3;
    toy.factor = [](std::uint32_t step) { return step == 2 ? not_a_number : 1 + 0.1 * step; };
    toy.task.notes = &notes;
    toy.task.validate = [this](const std::function<void(double)>&) {
      const double w = toy.weight();
      return Measure{std::abs(w - 2.68), w, {{"weight", "points of it", w}}};
    };
    toy.task.validated = [this](i64 epoch) { notes["last"] = double(epoch) / 3; };
  }

  TrainResult train(const std::string& path, Start start, i64 keep = 100) {
    RunFolder folder(path, start, keep);
    return toy.run(folder, "adam");
  }
};

// All checkpoints of a run, as bytes, by their names.
std::map<std::string, std::string> checkpoints(const std::string& run) {
  std::map<std::string, std::string> all;
  for (const std::string& name : saved_trainings(run)) {
    for (const char* file : {"/model.safetensors", "/state.safetensors"}) {
      all[name + file] = read_file(run + "/" + name + file);
    }
  }
  return all;
}

std::vector<std::string> names(const std::string& run) {
  std::vector<std::string> all = saved_trainings(run);
  std::reverse(all.begin(), all.end());
  return all;
}

// Changes the last byte of a file.
void damage(const std::string& path) {
  std::string all = read_file(path);
  all.back() ^= 1;
  std::ofstream(path, std::ios::binary) << all;
}

}  // namespace

TEST_SUITE("charlm") {

TEST_CASE("resume: stopped after any step, the same bits as at one go") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    const TemporaryFolder folder;
    const std::string straight = folder.path("straight");
    ToyRun whole(way);
    const TrainResult wanted = whole.train(straight, Start::fresh);
    CHECK(wanted.best_epoch == 2);
    for (std::uint32_t stop = 1; stop <= 7; ++stop) {
      CAPTURE(stop);
      const std::string run = folder.path("run" + std::to_string(stop));
      ToyRun first(way), second(way);
      first.toy.factor = [&, factor = first.toy.factor](std::uint32_t step) {
        if (step == stop) std::raise(SIGTERM);
        return factor(step);
      };
      const TrainResult stopped = first.train(run, Start::fresh);
      CHECK(stopped.ending == Ending::interrupted);
      CHECK(stopped.steps == stop);
      const TrainResult result = second.train(run, Start::resume);
      CHECK(result.ending == Ending::complete);
      CHECK(result.steps == 7);
      CHECK(result.skipped == wanted.skipped);
      CHECK(result.best_epoch == wanted.best_epoch);
      CHECK(result.best.figures.at(0).value == wanted.best.figures.at(0).value);
      CHECK(result.best.figures.at(0).unit == "points of it");
      CHECK(second.toy.weight() == whole.toy.weight());  // those of the best epoch
      CHECK(second.notes == whole.notes);
      const auto found = checkpoints(run);
      for (const auto& [name, bytes] : checkpoints(straight)) CHECK(found.at(name) == bytes);
      for (const char* name : {"/best.safetensors", "/last.safetensors"}) {
        CHECK(read_file(run + name) == read_file(straight + name));
      }
      CHECK(without_times(read_file(run + "/metrics.jsonl")) ==
            without_times(read_file(straight + "/metrics.jsonl")));
    }
  }
}

TEST_CASE("resume: a state that was saved without the sums since the last validation") {
  TrainingState state;
  state.recent_steps = 3;
  state.round = {2.5, 1.5};
  state.round_steps = 7;
  state.result.best.figures = {{"accuracy", "%", 12.5}, {"ratio", "", 0.5}};
  SavedTraining saved;
  saved.state.metadata = to_metadata(state, nullptr);
  const TrainingState same = training_state(saved, nullptr, false, "x");
  CHECK(same.round.loss == 2.5);
  CHECK(same.round.cross_entropy == 1.5);
  CHECK(same.round_steps == 7);
  REQUIRE(same.result.best.figures.size() == 2);
  CHECK(same.result.best.figures[0].unit == "%");
  CHECK(same.result.best.figures[0].value == 12.5);
  CHECK(same.result.best.figures[1].unit.empty());
  CHECK(same.result.best.figures[1].value == 0.5);
  for (const char* name : {"round_loss", "round_cross_entropy", "round_steps"}) {
    REQUIRE(saved.state.metadata.erase(name) == 1);
  }
  const TrainingState older = training_state(saved, nullptr, false, "x");
  CHECK(older.recent_steps == 3);
  CHECK(older.round_steps == 0);
  for (const std::string none : {"three", "3 or so", ""}) {
    saved.state.metadata["recent_steps"] = none;
    CHECK(error_of([&] { training_state(saved, nullptr, false, "x"); }) ==
          "x: its state has '" + none + "' for the number 'recent_steps'");
  }
  REQUIRE(saved.state.metadata.erase("best_loss") == 1);
  CHECK_ERROR(training_state(saved, nullptr, false, "x"),
              "x: its state has '' for the number 'best_loss'");
}

TEST_CASE("resume: patience goes on counting, and what is over stays over") {
  const TemporaryFolder folder;
  const std::string path = folder.path("run");
  const auto run = [&](Start start, std::uint32_t stop) {
    Toy toy(Way{});
    toy.options.steps = 100;
    toy.options.patience = 2;
    toy.task.validate = [](const std::function<void(double)>&) { return Measure{1, 1}; };
    toy.factor = [=](std::uint32_t step) {
      if (step == stop) std::raise(SIGINT);
      return 1.0;
    };
    RunFolder to(path, start);
    return toy.run(to);
  };
  CHECK(run(Start::fresh, 5).ending == Ending::interrupted);
  for (int again = 0; again < 2; ++again) {
    const TrainResult result = run(Start::resume, 0);
    CHECK(result.ending == Ending::out_of_patience);
    CHECK(result.steps == 6);  // epoch 1 was the best
  }
}

TEST_CASE("resume: which checkpoints are written, and which are kept") {
  const TemporaryFolder folder;
  ToyRun all(Way{});
  all.toy.options.checkpoint_steps = 3;
  all.toy.factor = [&](std::uint32_t step) {
    if (step == 5) std::raise(SIGUSR1);
    return 1.0;
  };
  all.train(folder.path("all"), Start::fresh);
  CHECK(names(folder.path("all")) ==
        std::vector<std::string>{"step-0000000000", "step-0000000002-validated", "step-0000000003",
                                 "step-0000000004-validated", "step-0000000005",
                                 "step-0000000006-validated", "step-0000000007-validated"});
  ToyRun one(Way{});
  const TrainResult result = one.train(folder.path("one"), Start::fresh, 1);
  CHECK(result.best_epoch == 2);
  CHECK(names(folder.path("one")) ==
        std::vector<std::string>{"step-0000000004-validated", "step-0000000007-validated"});
  // A run that was killed before it removed the old ones.
  ToyRun(Way{}).train(folder.path("all"), Start::resume, 1);
  CHECK(names(folder.path("all")) == names(folder.path("one")));
}

TEST_CASE("resume: a checkpoint that is damaged is skipped for the one before") {
  const TemporaryFolder folder;
  const std::string straight = folder.path("straight");
  ToyRun(Way{}).train(straight, Start::fresh);
  const std::string last = "step-0000000007-validated", best = "step-0000000004-validated";
  const std::function<void(const std::string&)> damages[] = {
      [&](const std::string& run) { std::filesystem::remove(run + "/" + last + "/manifest.json"); },
      [&](const std::string& run) { std::ofstream(run + "/" + last + "/manifest.json") << "{}"; },
      [&](const std::string& run) { damage(run + "/" + last + "/model.safetensors"); },
      [&](const std::string& run) { damage(run + "/" + last + "/state.safetensors"); },
      [&](const std::string& run) {
        std::filesystem::resize_file(run + "/" + last + "/state.safetensors", 100);
      },
      [&](const std::string& run) { damage(run + "/" + best + "/model.safetensors"); }};
  for (std::size_t i = 0; i < std::size(damages); ++i) {
    CAPTURE(i);
    const std::string run = folder.path("run" + std::to_string(i));
    ToyRun(Way{}).train(run, Start::fresh);
    damages[i](run);
    std::vector<std::string> passed;
    const SavedTraining found =
        read_last_training(run, [&](const std::string& what) { passed.push_back(what); });
    CHECK(found.step == (i < 5 ? 6 : 2));
    CHECK(passed.size() == (i < 5 ? 1 : 3));
    CHECK(contains(passed.at(0), last + " is not complete"));
    ToyRun(Way{}).train(run, Start::resume);
    CHECK(checkpoints(run) == checkpoints(straight));
    CHECK(without_times(read_file(run + "/metrics.jsonl")) ==
          without_times(read_file(straight + "/metrics.jsonl")));
  }
  const std::string renamed = "step-0000000008-validated";
  std::filesystem::rename(straight + "/" + last, straight + "/" + renamed);
  std::string why;
  CHECK(read_last_training(straight, [&](const std::string& what) { why += what; }).step == 6);
  CHECK(contains(why, "is of " + last + ", which is not its folder's name"));
  std::string manifest = read_file(straight + "/" + renamed + "/manifest.json");
  manifest.replace(manifest.find("\"files\""), 7, "\"other\"");
  std::filesystem::rename(straight + "/" + renamed, straight + "/" + last);
  std::ofstream(straight + "/" + last + "/manifest.json") << manifest;
  why.clear();
  CHECK(read_last_training(straight, [&](const std::string& what) { why += what; }).step == 6);
  CHECK(contains(why, "has no object 'files'"));
}

TEST_CASE("resume: a write that fails leaves the last complete checkpoint") {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  std::optional<FullDisk> disk;
  ToyRun full(Way{});
  full.toy.options.checkpoint_steps = 5;
  full.toy.factor = [&](std::uint32_t step) {
    if (step == 5) disk.emplace(50);  // less than any of its files
    return 1.0;
  };
  const std::string message = error_of([&] { full.train(run, Start::fresh); });
  disk.reset();
  CHECK(contains(message, "step-0000000005/model.safetensors: writing failed: File too large"));
  CHECK(read_last_training(run).step == 4);
  CHECK(ToyRun(Way{}).train(run, Start::resume).ending == Ending::complete);
  CHECK(read_last_training(run).step == 7);
}

TEST_CASE("resume: refusals") {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  const auto refusal = [&](const Task& task) {
    ToyRun other(Way{});
    other.toy.task.metadata = task.metadata;
    return error_of([&] { other.train(run, Start::resume); });
  };
  Task task;
  CHECK(contains(refusal(task), "cannot be opened as a folder"));
  std::filesystem::create_directory(run);
  CHECK(contains(refusal(task), "holds no complete checkpoint to resume from"));
  ToyRun(Way{}).train(run, Start::replace);
  task.metadata = {{"kept", "another text"}};
  CHECK(contains(refusal(task), "its 'kept' is not that of this run"));
  {
    const RunFolder held(run, Start::resume);
    CHECK(contains(refusal(task), "another process trains in it"));
  }
  ToyRun left(Way{});
  left.toy.factor = [](std::uint32_t) { return not_a_number; };
  CHECK(left.train(run, Start::replace).ending == Ending::not_finite);
  CHECK(contains(refusal({}), "the training diverged at step 3"));
}

TEST_CASE("resume: a refusal leaves the folder as it was") {
  const TemporaryFolder folder;
  const std::string run = folder.path("run");
  ToyRun(Way{}).train(run, Start::fresh);
  const std::string last = checkpoint_name(7, true);
  damage(run + "/" + last + "/state.safetensors");
  folder.file("run/result.json", "{}");
  const std::string log = read_file(run + "/metrics.jsonl");
  const auto all = checkpoints(run);
  const auto as_it_was = [&] {
    return checkpoints(run) == all && read_file(run + "/metrics.jsonl") == log &&
           std::filesystem::exists(run + "/result.json");
  };
  const auto refusal = [&](const std::string& optimizer) {
    ToyRun other(Way{});
    RunFolder resumed(run, Start::resume);
    return error_of([&] { other.toy.run(resumed, optimizer); });
  };
  CHECK(contains(refusal("adadelta"), "step-0000000006-validated"));  // Adam's state is another
  CHECK(as_it_was());
  std::filesystem::remove(run + "/metrics.jsonl");
  std::filesystem::create_directory(run + "/metrics.jsonl");
  CHECK(contains(refusal("adam"), "metrics.jsonl: cannot be written"));
  std::filesystem::remove(run + "/metrics.jsonl");
  folder.file("run/metrics.jsonl", log);
  CHECK(as_it_was());
  CHECK(ToyRun(Way{}).train(run, Start::resume).ending == Ending::complete);
  CHECK_FALSE(as_it_was());
}

TEST_CASE("charlm: killed and resumed, the same bits as at one go") {
  const TemporaryFolder folder;
  const Words words = tiny_model + Words{"--steps",
                                   "60",
                                   "--epoch-steps",
                                   "20",
                                   "--report-steps",
                                   "7",
                                   "--checkpoint-steps",
                                   "3",
                                   "--dropout",
                                   "0.1",
                                   "--act"};
  check_resume(built("apps/charlm"), words, folder.path(), 6);
}

TEST_CASE("charlm: with a memory, killed and resumed, the same bits as at one go") {
  const TemporaryFolder folder;
  Words words = tiny_model;
  words.insert(words.end(), {"--attention", "transformer-xl", "--encoding", "conv", "--memory",
                             "24", "--steps", "60", "--epoch-steps", "20", "--report-steps", "7",
                             "--checkpoint-steps", "3", "--dropout", "0.1"});
  check_resume(built("apps/charlm"), words, folder.path(), 6);
}

TEST_CASE("charlm: a signal ends it with a line that goes on" * not_sanitized()) {
  const TemporaryFolder folder;
  const std::string out = folder.path("a run");
  // The signal is sent once steps were reported, however long a busy machine takes to begin.
  const Words train = {"-c",
                       "\"$@\" & while kill -0 $! 2>/dev/null && ! grep -qs '\"train\"' "
                       "\"$0/metrics.jsonl\"; do sleep 0.1; done; kill -TERM $!; wait $!",
                       out,
                       built("apps/charlm"),
                       "--out",
                       out,
                       "--steps",
                       "100000"};
  const ProgramRun stopped = run_program("/bin/sh", train + tiny_model);
  CHECK(stopped.status == 128 + SIGTERM);
  const std::string mark = "; to resume:\n";
  REQUIRE(contains(stopped.out, mark));
  const std::size_t begin = stopped.out.find(mark) + mark.size();
  const std::string line = stopped.out.substr(begin, stopped.out.find('\n', begin) - begin);
  CHECK(contains(line, " --out '" + out + "' "));
  const i64 steps = std::stoll(read_checkpoint(out + "/last.safetensors").metadata.at("step"));
  CHECK(steps > 0);
  const ProgramRun resumed = shell(line + " --steps " + std::to_string(steps + 2) + " --quiet");
  CHECK_MESSAGE(resumed.status == 0, resumed.err);
  CHECK(read_checkpoint(out + "/last.safetensors").metadata.at("step") ==
        std::to_string(steps + 2));
}

TEST_CASE("charlm: a signal while the test is scored ends it with a line that goes on" *
          not_sanitized()) {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  const Words long_test = {"--steps", "1", "--test-batches", "1000000"};
  const Words train = {"-c",
                       "\"$@\" & while kill -0 $! 2>/dev/null && ! ls \"$0\"/step-*1-validated/"
                       "manifest.json >/dev/null 2>&1; do sleep 0.1; done; sleep 0.5; "
                       "kill -TERM $!; wait $!",
                       out,
                       built("apps/charlm"),
                       "--out",
                       out};
  const ProgramRun stopped = run_program("/bin/sh", train + tiny_model + long_test);
  CHECK(stopped.status == 128 + SIGTERM);
  CHECK(contains(stopped.out, "; to resume:\n"));
  CHECK_FALSE(std::filesystem::exists(out + "/result.json"));
}

TEST_CASE("charlm: what cannot be resumed is refused, and nothing is changed") {
  const TemporaryFolder folder;
  const std::string out = folder.path("run");
  const auto resumed = [&](const Words& more) {
    return charlm_program(Words{"train", "--out", out, "--resume"} + more);
  };
  check_refused(charlm_program({"--resume"}), "--resume: needs --out");
  check_refused(resumed({}), "holds no checkpoint to resume from; start again with --force");
  folder.file("run/metrics.jsonl", "");  // of a run that ended before its first checkpoint
  check_refused(charlm_program(Words{"--out", out} + tiny_model),
                "holds another run (metrics.jsonl); --force replaces it");
  std::filesystem::remove_all(out);
  const Words few = {"--out", out, "--epochs", "1", "--epoch-steps", "3"};
  REQUIRE(charlm_program(few + tiny_model).status == 0);
  const std::string log = read_file(out + "/metrics.jsonl");
  check_refused(resumed({"--force"}), "--resume: excludes --force");
  check_refused(resumed({"--width", "24"}), "--width: the run in " + out + " has 16");
  check_refused(resumed({"--preset", "text8-full-conv"}), "--preset: the run in");
  check_refused(resumed({"--steps", "2"}), "is after step 3 already");
  check_refused(resumed({"--keep", "0"}), "--keep: wanted 1 or more");
  check_refused(resumed({"--data", folder.file("text", std::string(20'000, 'a'))}), "'data_xxh3'");
  CHECK(read_file(out + "/metrics.jsonl") == log);
  CHECK(contains(resumed({"--vocabulary", "auto"}).out, "nothing is left to do"));
  const ProgramRun longer = resumed({"--epochs", "2"});
  REQUIRE_MESSAGE(longer.status == 0, longer.err);
  CHECK(read_checkpoint(out + "/last.safetensors").metadata.at("step") == "6");
  const std::string steps = folder.path("steps"), seeds = folder.path("seeds");
  const Words two = tiny_model + Words{"--steps", "2", "--epoch-steps", "2", "--quiet"};
  REQUIRE(charlm_program(two + Words{"--out", steps}).status == 0);
  check_refused(charlm_program({"--resume", "--out", steps, "--epochs", "9"}),
                "--epochs: --steps, which is 2, decides");
  REQUIRE(charlm_program(two + Words{"--out", seeds, "--seeds", "7"}).status == 0);
  check_refused(charlm_program({"--resume", "--out", seeds}),
                "holds a run of --seeds (seed-7); give --seeds with --resume");
}

}  // TEST_SUITE("charlm")
