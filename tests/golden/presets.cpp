// Every preset's first losses are what they were when its golden line was written. Few examples
// make a step, so that fifty are soon done; of the presets of long windows, three, of windows cut
// short. All else is the preset's.
#include <algorithm>
#include <cmath>

#include "apps/charlm/evaluate.h"
#include "apps/charlm/task.h"
#include "apps/data/text.h"
#include "apps/language/long_context.h"
#include "apps/vision/evaluate.h"
#include "apps/vision/task.h"
#include "apps/wordlm/evaluate.h"
#include "apps/wordlm/task.h"
#include "autograd/tape.h"
#include "nn/optimizer.h"
#include "tests/check.h"
#include "tests/golden/golden.h"
#include "tests/threads.h"

namespace weft {
namespace {

using nlohmann::json;

int steps_of(const std::string& preset) { return is_long_preset(preset) ? 3 : 50; }

template <class Settings>
Settings cheap(Settings settings) {
  settings.batch = 2;
  if (is_long_preset(settings.preset)) settings.model.length = 256;
  return settings;
}

// The number of steps, and whether the initial weights are moved by a rounding of f32 each, up or
// down.
struct Steps {
  int count;
  bool moved = false;
};

void move_by_roundings(const Task& task) {
  std::uint64_t seed = 77;
  for (const NamedParameter& p : task.parameters) {
    const Tensor& value = p.variable.value();
    value.copy_from(moved_by(0x1p-23, value, ++seed));
  }
}

std::vector<double> losses_of(const Task& task, const std::string& optimizer, double lr,
                              const Steps& steps) {
  if (steps.moved) move_by_roundings(task);
  const auto updates = make_optimizer(optimizer, task.parameters);
  std::vector<double> losses;
  for (int step = 1; step <= steps.count; ++step) {
    for (const NamedParameter& p : task.parameters) p.variable.place()->clear();
    Tape tape;
    const auto number = static_cast<std::uint32_t>(step);
    const Variable loss = task.loss(task.batch(number), {.number = number}).loss;
    tape.backward(loss);
    updates->step(lr);
    if (task.carry) task.carry(Tensor::full({1}, 1, DType::f64));
    losses.push_back(loss.value().item());
  }
  return losses;
}

std::vector<double> charlm_losses(const std::string& name, const Steps& steps) {
  const charlm::Settings settings = cheap(charlm::preset(name));
  const Text text = load_text("builtin", "text8");
  const Parts parts = split_text(text, parse_split("60/30/10"), settings.model.length);
  const charlm::Model model = charlm::new_model(settings, text);
  return losses_of(charlm::training_task(model, parts), settings.optimizer, settings.lr, steps);
}

// On random pieces, as many as the vocabulary of WikiText-2 has.
std::vector<double> wordlm_losses(const std::string& name, const Steps& steps) {
  const wordlm::Settings settings = cheap(wordlm::preset(name));
  const auto vocabulary = static_cast<std::uint32_t>(settings.model.vocabulary);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(100 * settings.model.length));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] =
        1 + static_cast<std::int32_t>(below(RandomKey{3, 0, 0}.words(i).word[0], vocabulary - 1));
  }
  const WordChunks chunks(ids, settings.model.length, 0);
  const wordlm::Model model = wordlm::new_model(settings, nullptr);
  return losses_of(wordlm::training_task(model, chunks, chunks), settings.optimizer, settings.lr,
                   steps);
}

std::vector<double> vision_losses(const std::string& name, const Steps& steps) {
  vision::Settings settings = vision::preset(name);
  settings.batch = settings.validation = 1;
  const vision::Model model = vision::new_model(settings);
  const PictureSet set{settings.dataset, drawn_pictures(1, 100), {}, {}};
  const vision::Parts parts = vision::divide(set, settings);
  TrainingBatches batches(set.train, parts.train, normalisation_of(set.name), settings.batch,
                          settings.seed);
  return losses_of(vision::training_task(model, parts, batches), settings.optimizer, settings.lr,
                   steps);
}

struct App {
  const char* name;
  std::vector<std::string> (*presets)();
  std::vector<double> (*losses)(const std::string&, const Steps&);
};

const App apps[] = {{"charlm", charlm::presets, charlm_losses},
                    {"wordlm", wordlm::presets, wordlm_losses},
                    {"vision", [] { return std::vector(vision::presets()); }, vision_losses}};

TEST_SUITE("golden") {

TEST_CASE("golden: write presets" * doctest::skip()) {
  const ThreadsOf one(1);
  std::vector<nlohmann::ordered_json> lines;
  for (const App& app : apps) {
    for (const std::string& preset : app.presets()) {
      lines.push_back({{"app", app.name},
                       {"preset", preset},
                       {"losses", app.losses(preset, {steps_of(preset)})}});
    }
  }
  golden::write("presets.jsonl", lines);
}

// Losses in f32 of other vectors (AVX2 in place of AVX-512) were within 1.3e-5 of these.
constexpr double tolerance_of_losses = 1e-4;

// As many as take seconds: a preset for CIFAR-100 differs from CIFAR-10's in its patches and
// classes alone, and under the sanitizers all is some twenty times slower.
std::size_t tried(const std::string& app, const std::string& preset, std::size_t all) {
  if (sanitized && !all_wanted()) return app == "charlm" ? 3 : 0;
  return preset.starts_with("cifar100") ? std::min<std::size_t>(all, 10) : all;
}

TEST_CASE("golden: every preset's first losses" * not_sanitized()) {
  const ThreadsOf one(1);
  for (const json& line : golden::read("presets.jsonl")) {
    const auto preset = line["preset"].get<std::string>();
    CAPTURE(preset);
    const auto app = std::ranges::find(apps, line["app"].get<std::string>(), &App::name);
    REQUIRE(app != std::end(apps));
    const std::vector<double> wanted = line["losses"];
    const std::size_t count = tried(app->name, preset, wanted.size());
    const Steps steps{static_cast<int>(count)};
    const std::vector<double> got = app->losses(preset, steps);
    const auto off = [&](const std::vector<double>& from, std::size_t i) {
      return std::abs(from[i] / wanted[i] - 1);
    };
    // If f32 adds in another order, losses differ as those of trainings whose weights differ by a
    // rounding each: the difference grows from step to step, with some presets quickly.
    std::vector<double> moved;
    double apart = 0;
    for (std::size_t i = 0; i < count; ++i) {
      CAPTURE(i);
      if (off(got, i) > tolerance_of_losses && moved.empty()) {
        moved = app->losses(preset, {.count = steps.count, .moved = true});
      }
      if (!moved.empty()) apart = std::max(apart, std::abs(moved[i] / got[i] - 1));
      CHECK(off(got, i) <= std::max(tolerance_of_losses, 4 * apart));
    }
  }
}

}  // TEST_SUITE("golden")

}  // namespace
}  // namespace weft
