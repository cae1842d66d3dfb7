#include "apps/lra/settings.h"

#include <algorithm>
#include <utility>

#include "ops/attention/spec.h"

namespace weft::lra {
namespace {

// The rows of a task's table in bench/tables. Sizes of mechanisms are those of the small models
// in the Nyströmformer paper: 256 slots or features, and two rounds for Reformer. csp sorts each
// channel completely, as the released code for these tasks.
std::vector<std::pair<std::string, std::string>> mechanisms_of_rows(const TaskFacts& task) {
  return {{"full", "full"},
          {"linformer", "linformer:rank=256"},
          {"performer", "performer:features=256"},
          {"reformer", "lsh:rounds=2"},
          {"linear", "linear"},
          {"cosformer", fmt::format("cosformer:max_length={}", task.length)},
          {"local", "local:context=256"},
          {"csp", "csp:groups=1,order=ascending"}};
}

void take_recipe(Settings& s, const TaskFacts& task) {
  s.task = task.name;
  s.data = task.data;
  s.batch = task.batch;
  s.steps = task.steps;
  s.warmup = task.warmup;
  s.round_steps = task.round_steps;
}

}  // namespace

const std::vector<TaskFacts>& all_tasks() {
  static const std::vector<TaskFacts> list = {
      {.name = "listops",
       .symbols = 16,
       .classes = 10,
       .length = 2000,
       .batch = 32,
       .steps = 5000,
       .warmup = 1000,
       .round_steps = 500,
       .data = "builtin",
       .released = "the released files, basic_train.tsv and others",
       .examples = 96000,
       .held_out = 2000},
      {.name = "image",
       .symbols = 256,
       .classes = 10,
       .length = 1024,
       .batch = 256,
       .steps = 35000,
       .warmup = 175,
       .round_steps = 175,
       .data = "cifar-10-batches-bin",
       .released = "CIFAR-10, binary version",
       .examples = 0,
       .held_out = 0},
      {.name = "pathfinder",
       .symbols = 256,
       .classes = 2,
       .length = 1024,
       .batch = 256,
       .steps = 62400,
       .warmup = 312,
       .round_steps = 312,
       .data = "builtin",
       .released = "",
       .examples = 160000,
       .held_out = 20000},
      {.name = "text",
       .symbols = 256,
       .classes = 2,
       .length = 4000,
       .batch = 32,
       .steps = 20000,
       .warmup = 8000,
       .round_steps = 500,
       .data = "aclImdb",
       .released = "the reviews of IMDb, aclImdb",
       .examples = 0,
       .held_out = 0},
      {.name = "retrieval",
       .symbols = 256,
       .classes = 2,
       .length = 4000,
       .together = 2,
       .batch = 32,
       .steps = 30000,
       .warmup = 800,
       .round_steps = 3000,
       .data = "tsv_data",
       .released = "the released files, new_aan_pairs.train.tsv and others",
       .examples = 0,
       .held_out = 0}};
  return list;
}

const TaskFacts& facts_of(const std::string& task) {
  std::vector<std::string> names;
  for (const TaskFacts& facts : all_tasks()) names.push_back(facts.name);
  check_word("task", task, names);
  return *std::find_if(all_tasks().begin(), all_tasks().end(),
                       [&](const TaskFacts& facts) { return facts.name == task; });
}

Settings::Settings() {
  optimizer = "adam";
  lr = 1e-4;
  schedule = "linear";
  clip = 0;
  take_recipe(*this, all_tasks().front());
}

const std::vector<std::string>& presets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const TaskFacts& task : all_tasks()) {
      for (const auto& [row, attention] : mechanisms_of_rows(task)) {
        all.push_back(fmt::format("{}-{}", task.name, row));
      }
    }
    return all;
  }();
  return names;
}

Settings preset(const std::string& name) {
  check_word("preset", name, presets());
  const std::size_t cut = name.find('-');
  const TaskFacts& task = facts_of(name.substr(0, cut));
  Settings s;
  take_recipe(s, task);
  for (const auto& [row, attention] : mechanisms_of_rows(task)) {
    if (name.substr(cut + 1) == row) s.model.attention = attention;
  }
  s.preset = name;
  return s;
}

void check(const Settings& settings) {
  check_numbers(settings);
  check_training(settings);
  const bool as_drawn = settings.examples == 0 && settings.held_out == 0 &&
                        settings.data_seed == Settings{}.data_seed;
  require(facts_of(settings.task).examples > 0 || as_drawn,
          "--examples, --held-out and --data-seed are of built-in data, and {} has none",
          settings.task);
  require(settings.data == "builtin" || as_drawn,
          "--examples, --held-out and --data-seed are of built-in data, and --data is {}",
          settings.data);
  AttentionSpec{settings.model.attention};
}

}  // namespace weft::lra
