#include "apps/training/train.h"

#include <cmath>
#include <csignal>

#include <nlohmann/json.hpp>

#include "doctest/doctest.h"
#include "tests/charlm/toy.h"
#include "tests/files.h"
#include "tests/json_lines.h"
#include "tests/numbers.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace weft;

TEST_SUITE("charlm") {

TEST_CASE("train: steps, epochs, the log and the checkpoints") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    const TemporaryFolder folder;
    Toy toy(way);
    TrainResult result;
    {
      RunFolder run(folder.path("run"), Start::fresh);
      result = toy.run(run);
    }
    CHECK(result.ending == Ending::complete);
    CHECK(result.steps == 6);
    CHECK(result.best_epoch == 3);
    const float wanted = 3 * std::pow(0.9f, 6.0f);  // w ← w − 0.1 w, six times
    CHECK(toy.weight() == doctest::Approx(wanted));
    const auto log = lines(read_file(folder.path("run/metrics.jsonl")));
    REQUIRE(log.size() == 9);
    for (const char* key : {"step", "epoch", "tokens", "loss", "score", "tokens_per_second",
                            "learning_rate", "gradient_norm", "elapsed", "remaining"}) {
      CHECK_MESSAGE(log[0].contains(key), key);
    }
    CHECK(log[0]["kind"] == "train");
    CHECK(log[0]["loss"].get<double>() == doctest::Approx(6.5));
    CHECK(log[0]["gradient_norm"].get<double>() == doctest::Approx(std::sqrt(13)));
    CHECK(log[2]["kind"] == "validation");
    CHECK(log[8]["epoch"] == 3);
    for (const char* name : {"run/best.safetensors", "run/last.safetensors"}) {
      const Checkpoint saved = read_checkpoint(folder.path(name));
      CHECK(saved.tensors.at("weights").to_vector<float>()[0] == toy.weight());
      CHECK(saved.metadata.at("kept") == "text");
      CHECK(saved.metadata.at("step") == "6");
      CHECK(std::stod(saved.metadata.at("validation_score")) == result.best.cross_entropy);
    }
  }
}

TEST_CASE("train: a validation is logged with the training's loss since the one before") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    const TemporaryFolder folder;
    Toy toy(way);
    toy.options.steps = 7;
    toy.options.epoch_steps = 3;
    toy.options.report_steps = 2;
    toy.task.round = "round";
    toy.task.targets_per_step = 10;
    RunFolder run(folder.path("run"), Start::fresh);
    toy.run(run);
    std::vector<double> losses;  // Σ w² / 2, where w shrinks by a tenth a step
    for (int step = 0; step < 7; ++step) losses.push_back(6.5 * std::pow(0.81, step));
    const auto mean = [&](int first, int last) {
      double sum = 0;
      for (int step = first; step <= last; ++step) sum += losses[std::size_t(step - 1)];
      return doctest::Approx(sum / (last - first + 1));
    };
    std::vector<nlohmann::json> validations, reports;
    for (const auto& line : lines(read_file(folder.path("run/metrics.jsonl")))) {
      (line["kind"] == "validation" ? validations : reports).push_back(line);
      CHECK(line["tokens"] == 10 * line["step"].get<int>());
      CHECK_FALSE(line.contains("epoch"));
    }
    REQUIRE(validations.size() == 3);
    CHECK(validations[0]["train_loss"].get<double>() == mean(1, 3));
    CHECK(validations[1]["train_loss"].get<double>() == mean(4, 6));
    CHECK(validations[2]["train_loss"].get<double>() == mean(7, 7));
    CHECK(validations[1]["train_score"] == validations[1]["train_loss"]);
    CHECK(validations[2]["round"] == 3);
    REQUIRE(reports.size() == 4);  // after 2, 4 and 6 steps and at the end
    CHECK(reports[3]["loss"].get<double>() == mean(7, 7));
  }
}

TEST_CASE("train: a run that is shorter than a report has one all the same") {
  const TemporaryFolder folder;
  Toy toy(Way{});
  toy.options.report_steps = 100;
  toy.options.patience = 1;
  toy.validation = {1, 2, 3};  // ends after four of six steps
  RunFolder run(folder.path("run"), Start::fresh);
  CHECK(toy.run(run).ending == Ending::out_of_patience);
  CHECK(logged(folder.path("run"), "train", "step") == std::vector<double>{2, 4});
}

TEST_CASE("train: a line that is printed has one unit of loss" * not_sanitized()) {
  for (const auto& [name, unit] : std::vector<std::pair<std::string, std::string>>{
           {"charlm", "bpc"}, {"wordlm", "ppl"}, {"vision", "nats"}}) {
    CAPTURE(name);
    const ProgramRun run = app(name, {"--steps", "3", "--width", "16", "--heads", "2"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    std::istringstream text(run.out);
    std::vector<std::string> shown;
    for (std::string line; std::getline(text, line);) {
      if (contains(line, "step 3/3")) shown.push_back(line);
    }
    REQUIRE(shown.size() == 2);  // a report and the validation
    for (const std::string& line : shown) {
      CHECK(line.starts_with(name == "charlm" ? "round 0." : "epoch 0."));
      CHECK(contains(line, " of 1  step 3/3  "));
      CHECK(contains(line, "train "));
      CHECK(contains(line, unit));
      for (const char* other : {"bpc", "ppl", "nats", "loss"}) {
        if (other != unit) CHECK_FALSE(contains(line, other));
      }
    }
    CHECK(contains(shown[1], "  validation "));
  }
}

TEST_CASE("train: a run that ends inside a round says how much of it there was" * not_sanitized()) {
  const auto validations = [](const char* steps, const char* epoch_steps) {
    const ProgramRun run =
        app("charlm", {"--steps", steps, "--epoch-steps", epoch_steps, "--width", "16", "--heads",
                       "2", "--length", "16", "--validation-batches", "1", "--test-batches", "1"});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    std::istringstream text(run.out);
    std::vector<std::string> places;
    for (std::string line; std::getline(text, line);) {
      const std::size_t place = line.find("  train "), scored = line.find("  validation ");
      if (line.starts_with("round ") && place < scored && scored != std::string::npos) {
        places.push_back(line.substr(0, place));
      }
    }
    return places;
  };
  using Places = std::vector<std::string>;
  CHECK(validations("5", "2") == Places{"round 1/3  step 2/5", "round 2/3  step 4/5",
                                        "round 2.50 of 3  step 5/5"});
  CHECK(validations("4", "2") == Places{"round 1/2  step 2/4", "round 2/2  step 4/4"});
  CHECK(validations("1", "1000") == Places{"round 0.001 of 1  step 1/1"});
}

TEST_CASE("train: the weights of the best validation come back") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    const TemporaryFolder folder;
    Toy toy(way);
    toy.validation = {5, 3, 4};
    RunFolder run(folder.path("run"), Start::fresh);
    const TrainResult result = toy.run(run);
    CHECK(result.best_epoch == 2);
    CHECK(result.best.loss == 3);
    CHECK(toy.weight() == doctest::Approx(3 * std::pow(0.9f, 4.0f)));
    const auto first = [&](const char* name) {
      return read_checkpoint(folder.path(name)).tensors.at("weights").to_vector<float>()[0];
    };
    CHECK(first("run/best.safetensors") == toy.weight());
    CHECK(first("run/last.safetensors") == doctest::Approx(3 * std::pow(0.9f, 6.0f)));
  }
}

TEST_CASE("train: another criterion, further figures, and a call after each validation") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    const TemporaryFolder folder;
    Toy toy(way);
    const double right[] = {10, 60, 40};
    toy.task.validate = [&](const std::function<void(double)>&) {
      const double share = right[toy.validations++];
      return Measure{1.0 / double(toy.validations), 2, {{"right", "% right", share}}};
    };
    toy.task.criterion = [](const Measure& m) { return 100 - m.figures.at(0).value; };
    std::vector<i64> called;
    std::vector<float> weights;
    toy.task.validated = [&](i64 epoch) {
      called.push_back(epoch);
      weights.push_back(toy.weight());
    };
    RunFolder run(folder.path("run"), Start::fresh);
    const TrainResult result = toy.run(run);
    CHECK(result.best_epoch == 2);  // the least loss is the third's
    CHECK(result.best.figures.at(0).value == 60);
    CHECK(called == std::vector<i64>{1, 2, 3});
    CHECK(toy.weight() == weights[1]);
    CHECK(logged(folder.path("run"), "validation", "right") == std::vector<double>{10, 60, 40});
    const Checkpoint best = read_checkpoint(folder.path("run/best.safetensors"));
    CHECK(best.metadata.at("validation_right") == "60");
  }
}

TEST_CASE("train: patience counts epochs without a better loss") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    Toy toy(way);
    toy.options.steps = 100;
    toy.options.patience = 2;
    toy.validation = {5, 4, 4, not_a_number, 1};
    RunFolder nothing;
    const TrainResult result = toy.run(nothing);
    CHECK(result.ending == Ending::out_of_patience);
    CHECK(result.steps == 8);  // epoch 2 was the best, 3 and 4 were not better
  }
}

TEST_CASE("train: a step that is not finite changes nothing") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    const TemporaryFolder folder;
    Toy toy(way);
    toy.factor = [](std::uint32_t step) {
      return step == 2 || step == 3 || step == 5 ? not_a_number : 1.0;
    };
    RunFolder run(folder.path("run"), Start::fresh);
    const TrainResult result = toy.run(run);
    CHECK(result.ending == Ending::complete);
    CHECK(result.skipped == 3);
    CHECK(toy.weight() == doctest::Approx(3 * std::pow(0.9f, 3.0f)));
    CHECK(logged(folder.path("run"), "skipped", "step") == std::vector<double>{2, 3, 5});
  }
}

TEST_CASE("train: three steps in a row that are not finite end it and keep the last good model") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    for (const char* what : {"loss", "gradient"}) {
      CAPTURE(what);
      const TemporaryFolder folder;
      Toy toy(way);
      auto& broken = what == std::string("loss") ? toy.factor : toy.bend;
      const double value = what == std::string("loss") ? not_a_number : 1e30;
      // Good steps follow: a device has them in its queue when the third failure is heard of.
      broken = [=, before = broken](std::uint32_t step) {
        return step < 4 || step > 6 ? before(step) : value;
      };
      toy.options.steps = 9;
      toy.options.epoch_steps = 100;
      RunFolder run(folder.path("run"), Start::fresh);
      const TrainResult result = toy.run(run);
      CHECK(result.ending == Ending::not_finite);
      CHECK(result.steps == 6);
      CHECK(result.skipped == 3);
      const Tensor saved =
          read_checkpoint(folder.path("run/last.safetensors")).tensors.at("weights");
      CHECK(saved.to_vector<float>()[0] == toy.weight());
      CHECK(toy.weight() == doctest::Approx(3 * std::pow(0.9f, 3.0f)));
      for (const auto& line : logged(folder.path("run"), "skipped")) CHECK(line["what"] == what);
    }
  }
}

TEST_CASE("train: failures in a row count over a resume") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    const TemporaryFolder folder;
    for (const bool again : {false, true}) {
      Toy toy(way);
      toy.options.steps = 9;
      toy.options.epoch_steps = 100;
      toy.factor = [again](std::uint32_t step) {
        if (!again && step == 5) std::raise(SIGTERM);
        return step < 4 || step > 6 ? 1.0 : not_a_number;
      };
      RunFolder run(folder.path("run"), again ? Start::resume : Start::fresh);
      const TrainResult result = toy.run(run);
      CHECK(result.ending == (again ? Ending::not_finite : Ending::interrupted));
      CHECK(result.steps == (again ? 6 : 5));
      CHECK(toy.weight() == doctest::Approx(3 * std::pow(0.9f, 3.0f)));
    }
  }
}

TEST_CASE("train: an update that is not finite is taken back") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    const TemporaryFolder folder;
    Toy toy(way);
    toy.options.learning_rate = [](i64 step) { return step == 3 ? 1e39 : 0.1; };
    RunFolder run(folder.path("run"), Start::fresh);
    const TrainResult result = toy.run(run);
    CHECK(result.ending == Ending::not_finite);
    CHECK(result.steps == 3);
    CHECK(toy.weight() == doctest::Approx(3 * std::pow(0.9f, 2.0f)));
    CHECK(all_finite(read_checkpoint(folder.path("run/last.safetensors")).tensors.at("weights")));
  }
}

TEST_CASE("train: clipping bounds the step") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    Toy toy(way);
    toy.options.steps = 1;
    toy.options.clip = 0.5;
    RunFolder nothing;
    toy.run(nothing);
    CHECK(toy.weight() == doctest::Approx(3 - 0.1 * 0.5 * 3 / std::sqrt(13)));
  }
}

TEST_CASE("train: a signal ends it after the step") {
  for (const Way& way : ways()) {
    CAPTURE(way.graph);
    for (const int signal : {SIGINT, SIGTERM}) {
      const TemporaryFolder folder;
      Toy toy(way);
      toy.factor = [&](std::uint32_t step) {
        if (step == 3) std::raise(signal);
        return 1.0;
      };
      RunFolder run(folder.path("run"), Start::fresh);
      const TrainResult result = toy.run(run);
      CHECK(result.ending == Ending::interrupted);
      CHECK(result.signal == signal);
      CHECK(result.steps == 3);
      const Checkpoint last = read_checkpoint(folder.path("run/last.safetensors"));
      CHECK(last.metadata.at("step") == "3");
      CHECK_FALSE(last.metadata.contains("validation_loss"));
      CHECK(last.tensors.at("weights").to_vector<float>()[0] ==
            doctest::Approx(3 * std::pow(0.9f, 3.0f)));
    }
  }
}

TEST_CASE("run folder: another run, another process, a file in the place") {
  const TemporaryFolder folder;
  {
    RunFolder first(folder.path("run"), Start::fresh);
    first.save({.step = 1, .validated = true, .best = "step-0000000001-validated"});
    CHECK(contains(error_of([&] { RunFolder(folder.path("run"), Start::replace); }),
                   "another process"));
  }
  const std::string best = folder.path("run/best.safetensors");
  const std::string message = error_of([&] { RunFolder(folder.path("run"), Start::fresh); });
  CHECK(contains(message, "holds another run (best.safetensors)"));
  CHECK(std::filesystem::exists(best));
  { RunFolder again(folder.path("run"), Start::replace); }
  CHECK_FALSE(std::filesystem::exists(best));
  const std::string file = folder.file("file", "x");
  CHECK(contains(error_of([&] { RunFolder(file, Start::fresh); }), "cannot create the folder"));
  CHECK(contains(error_of([&] { RunFolder(file + "/below", Start::fresh); }),
                 "cannot create the folder"));
  CHECK(read_file(file) == "x");
}

}  // TEST_SUITE
