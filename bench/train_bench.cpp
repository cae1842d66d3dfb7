// Tokens a second of one training step (forward, backward, optimizer) of charlm's, wordlm's and
// vision's presets, beside the ceiling that the machine's GEMM rate sets.
//
//     build/bench/train_bench [--preset NAME] [--attention SPEC] [--bare] [--threads N]
//     [--device cuda] [--batch N] [--shards V] [--json]
//     build/bench/train_bench --ranks N --batch N [--preset NAME] [--attention SPEC] …
//
// With --attention the preset's model has that mechanism instead of its own. On a CUDA device steps
// are queued as charlm queues them, by default as replays of one graph. The step is timed as in the
// preset, and language models also bare: without dropout and adaptive computation time. The ceiling
// is the rate of a 2048³ product of that precision on one thread, times the threads of all ranks,
// over the operations that Task counts.
//
// With --ranks the step, of language models the bare one, runs on one process of the CPU and, by
// mpirun, on N, turn by turn, with the same examples for each rank: how many times as fast all
// together are, with the bytes that a rank sends in a step, and how long its exchanges take and how
// long the step waits for them behind its backward pass. The other options are those of each.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>

#include <nlohmann/json.hpp>

#include "apps/charlm/evaluate.h"
#include "apps/charlm/task.h"
#include "apps/command_line/command_line.h"
#include "apps/command_line/device_option.h"
#include "apps/command_line/options.h"
#include "apps/data/text.h"
#include "apps/training/queued_steps.h"
#include "apps/training/step_gradient.h"
#include "apps/vision/evaluate.h"
#include "apps/vision/task.h"
#include "apps/wordlm/evaluate.h"
#include "apps/wordlm/task.h"
#include "bench/ceilings.h"
#include "bench/measure.h"
#include "nn/optimizer.h"
#include "nn/precision.h"
#include "runtime/allocator.h"
#include "runtime/communicator.h"
#include "runtime/parallel.h"

namespace weft::bench {

namespace {

// The steps of a task, which are timed.
struct Subject {
  std::string preset, attention;
  bool bare;
  i64 batch, shards, length, parameters;
  std::string optimizer;
  double lr;
};

// Settings of all rows.
struct Options {
  i64 batch = 0;           // 0: the preset's
  std::string attention;   // empty: the preset's
  std::string precision = "f32";
  Device device;
  bool graph = true;
  i64 shards = 1;                // on several ranks at least as many as there are
  int runs = 15;                 // of a step at least, behind a third of them unmeasured
  double seconds = 3, rate = 0;  // rate: of the machine's products, operations a second
};

Row row(const Subject& subject, const Task& task, const Options& options) {
  CachingAllocator& memory = allocator(options.device);
  memory.reset_peak();  // of the ceiling's product, and of the row before
  const std::vector<NamedParameter>& parameters = task.parameters;
  const auto optimizer = make_optimizer(subject.optimizer, parameters);
  TrainOptions training;
  training.graph = options.graph;
  training.shards = subject.shards;
  training.learning_rate = [&](i64) { return subject.lr; };
  const auto queue = queue_for(task, training, *optimizer);
  std::optional<StepGradient> gradient;  // of steps that are not queued
  if (!queue) gradient.emplace(task, training.shards);
  std::uint32_t number = 0;
  std::optional<std::uint64_t> early;  // calls of the system's allocator up to step 3
  std::vector<double> processor;  // processor time of every step
  const auto step = [&] {
    ++number;
    if (queue) {  // when the queue is full, a step ends for each that begins
      queue->submit(number, {});
      if (!queue->room()) queue->take();
    } else {
      (*gradient)(task.batch(number), {.number = number}, gradient->saying());
      optimizer->step(subject.lr);
    }
    if (number == 3) early = memory.counts().system_allocations;
  };
  const auto timed_step = [&] {
    const double begin = processor_seconds();
    step();
    processor.push_back(processor_seconds() - begin);
  };
  const int warm_up = (options.runs + 2) / 3;
  // Ranks do the same number of steps.
  const Quantiles times =
      measure(timed_step, warm_up, options.runs, ranks().alone() ? options.seconds : 0);
  const auto steps = static_cast<double>(number);
  processor.erase(processor.begin(), processor.begin() + warm_up);
  while (queue && queue->any()) queue->take();
  const auto tokens = static_cast<double>(subject.batch * subject.length);
  const double work = task.operations / tokens;  // of products, per token
  const int units = options.device == Device{} ? threads() : 1;  // of a rank
  const double ceiling = options.rate * units * ranks().size() / work;
  const auto traffic = gradient ? gradient->traffic() : GradientSum::Traffic{};
  const MemoryCounts counts = memory.counts();
  Row later = nullptr;  // where fewer than three steps ran
  if (early) later = counts.system_allocations - *early;
  Row json = machine(options.device);
  json.update({{"preset", subject.preset},
               {"attention", subject.attention},
               {"precision", options.precision},
               {"bare", subject.bare},
               {"graph", queue && options.graph},
               {"batch", subject.batch},
               {"ranks", ranks().size()},
               {"shards", training.shards},
               {"sent_bytes_per_step", static_cast<double>(traffic.bytes) / steps},
               {"exchange_ms_per_step", 1e3 * traffic.exchanging / steps},
               {"waited_ms_per_step", 1e3 * traffic.waiting / steps},
               {"length", subject.length},
               {"parameters", subject.parameters},
               {"tokens_per_second", tokens / times.median},
               {"ms_median", 1e3 * times.median},
               {"cpu_ms_median", 1e3 * quantiles(processor).median},
               {"ms_p10", 1e3 * times.p10},
               {"ms_p90", 1e3 * times.p90},
               {"products_per_token", work},
               {"gemm_gflops", options.rate / 1e9},
               {"ceiling_tokens_per_second", nullptr},
               {"share_of_ceiling", nullptr},
               {"system_allocations_after_step_3", later},
               {"peak_bytes", counts.peak}});
  if (!task.operations_at_most) {
    json["ceiling_tokens_per_second"] = ceiling;
    json["share_of_ceiling"] = tokens / times.median / ceiling;
  }
  return json;
}

// A preset's settings with those of the command line in place of its own.
template <class SomeSettings>
SomeSettings settings_of(SomeSettings settings, const Options& options) {
  if (options.batch > 0) settings.batch = options.batch;
  if (!options.attention.empty()) settings.model.attention = options.attention;
  settings.model.precision = options.precision;
  settings.shards = std::max<i64>(options.shards, ranks().size());
  check_together(settings);
  return settings;
}

// A step of a language model; task(model) is its training.
template <class SomeSettings, class NewModel, class NewTask>
Row language_row(SomeSettings settings, bool bare, const Options& options,
                 const NewModel& new_model, const NewTask& new_task) {
  UniversalTransformerConfig& m = settings.model;
  if (bare) {
    m.attention_dropout = m.residual_dropout = m.output_dropout = 0;
    m.act = false;
  }
  const auto model = new_model(settings);
  move_to(*model.network, options.device);
  const Task task = new_task(model);
  return row({settings.preset, m.attention, bare, settings.batch, settings.shards, m.length,
              parameter_count(*model.network), settings.optimizer, settings.lr},
             task, options);
}

Row charlm_row(const std::string& name, bool bare, const Options& options) {
  const charlm::Settings settings = settings_of(charlm::preset(name), options);
  const Text text = load_text("builtin", "text8");
  const Parts parts = split_text(text, parse_split("60/30/10"), settings.model.length);
  return language_row(
      settings, bare, options,
      [&](const charlm::Settings& s) { return charlm::new_model(s, text); },
      [&](const charlm::Model& model) { return charlm::training_task(model, parts); });
}

// On random pieces, like vision's pictures: the data does not change the time of a step.
Row wordlm_row(const std::string& name, bool bare, const Options& options) {
  const wordlm::Settings settings = settings_of(wordlm::preset(name), options);
  std::mt19937 generator(1);
  std::uniform_int_distribution<std::int32_t> piece(
      1, static_cast<std::int32_t>(settings.model.vocabulary) - 1);
  std::vector<std::int32_t> ids(
      static_cast<std::size_t>(10 * settings.batch * settings.model.length));
  for (std::int32_t& id : ids) id = piece(generator);
  const WordChunks chunks(ids, settings.model.length, 0);
  return language_row(
      settings, bare, options,
      [](const wordlm::Settings& s) { return wordlm::new_model(s, nullptr); },
      [&](const wordlm::Model& model) { return wordlm::training_task(model, chunks, chunks); });
}

// On pictures that are drawn: their content does not change the time of a step.
Row vision_row(const std::string& name, const Options& options) {
  vision::Settings settings = settings_of(vision::preset(name), options);
  settings.validation = settings.batch;
  const vision::Model model = vision::new_model(settings);
  move_to(*model.network, options.device);
  const PictureSet set{settings.dataset, drawn_pictures(1, 10 * settings.batch), {}, {}};
  const vision::Parts parts = vision::divide(set, settings);
  TrainingBatches batches(set.train, parts.train, normalisation_of(set.name), settings.batch,
                          settings.seed);
  const Task task = vision::training_task(model, parts, batches);
  return row(
      {name, settings.model.attention, false, settings.batch, settings.shards,
       settings.model.tokens(), parameter_count(*model.network), settings.optimizer, settings.lr},
      task, options);
}

void print(const Row& result, bool json) {
  if (json) {
    fmt::print("{}\n", result.dump());
  } else {
    const std::string share =  // none where the count of operations is only at most
        result["share_of_ceiling"].is_null()
            ? ""
            : fmt::format("  {:3.0f} % of {:.0f}", 100 * result["share_of_ceiling"].get<double>(),
                          result["ceiling_tokens_per_second"].get<double>());
    fmt::print("{:<34}{:<6} {:8.0f} tokens/s  {:8.2f} ms, {:8.2f} of processor{}\n",
               result["preset"].get<std::string>(), result["bare"].get<bool>() ? "bare" : "whole",
               result["tokens_per_second"].get<double>(), result["ms_median"].get<double>(),
               result["cpu_ms_median"].get<double>(), share);
  }
  std::fflush(stdout);
}

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_of_pictures(const std::string& preset) { return is_among(vision::presets(), preset); }

// The presets that --preset names. Throws for an unknown one.
std::vector<std::string> presets_of(const std::string& wanted) {
  std::vector<std::string> known = {"all"};
  for (const auto& some : {charlm::presets(), wordlm::presets(), vision::presets()}) {
    known.insert(known.end(), some.begin(), some.end());
  }
  check_word("preset", wanted, known);
  return wanted == "all" ? charlm::presets() : std::vector{wanted};
}

Row preset_row(const std::string& name, bool bare, const Options& options) {
  if (is_of_pictures(name)) return vision_row(name, options);
  if (is_among(wordlm::presets(), name)) return wordlm_row(name, bare, options);
  return charlm_row(name, bare, options);
}

// The first row that this program prints for `words`, on so many ranks.
Row row_of_ranks(int count, const std::vector<std::string>& words) {
  std::string command = "OMP_NUM_THREADS=1 ";
  if (count > 1) {
    command += fmt::format(
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun "
        "--oversubscribe --bind-to none -np {} ",
        count);
  }
  command += shell_word(std::filesystem::read_symlink("/proc/self/exe").string());
  for (const std::string& word : words) command += " " + shell_word(word);
  FILE* const pipe = popen(command.c_str(), "r");
  require(pipe != nullptr, "{}: cannot be started", command);
  std::string said;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) said += static_cast<char>(c);
  require(pclose(pipe) == 0, "{}: failed", command);
  return Row::parse(said.substr(0, said.find('\n')));
}

// The words of the command line that a run of the comparison takes as they are.
std::vector<std::string> shared_words(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    if (is_among({"--ranks", "--preset", "--batch"}, name)) {
      if (name == word) ++i;  // its value is the next word
    } else if (!is_among({"--bare", "--json"}, name)) {
      words.push_back(word);
    }
  }
  return words;
}

void compare_ranks(int count, const std::string& preset, i64 batch,
                   const std::vector<std::string>& shared, bool json) {
  std::vector<double> ratios;
  Row one, several;
  const auto row = [&](int ranks) {
    std::vector<std::string> words = {"--preset",  preset, "--batch", std::to_string(ranks * batch),
                                      "--seconds", "0",    "--json"};
    if (!is_of_pictures(preset)) words.push_back("--bare");
    words.insert(words.end(), shared.begin(), shared.end());
    return row_of_ranks(ranks, words);
  };
  const auto number = [](const Row& row, const char* name) { return row[name].get<double>(); };
  for (int turn = 0; turn < 3; ++turn) {
    one = row(1), several = row(count);
    ratios.push_back(number(several, "tokens_per_second") / number(one, "tokens_per_second"));
  }
  several["times_one_rank"] = quantiles(ratios).median;
  several["times_one_rank_of_turns"] = ratios;
  several["cpu_ms_median_of_one_rank"] = one["cpu_ms_median"];
  if (json) return fmt::print("{}\n", several.dump());
  fmt::print(
      "{:<34}{} ranks are {:.2f} times as fast as one ({:.2f} to {:.2f}); a step of {:.1f} ms "
      "takes {:.1f} of a rank's processor ({:.1f} on one), sends {:.2f} MB in {:.2f} ms and "
      "waits {:.2f} ms for it\n",
      preset, count, quantiles(ratios).median, *std::ranges::min_element(ratios),
      *std::ranges::max_element(ratios), number(several, "ms_median"),
      number(several, "cpu_ms_median"), number(one, "cpu_ms_median"),
      number(several, "sent_bytes_per_step") / 1e6, number(several, "exchange_ms_per_step"),
      number(several, "waited_ms_per_step"));
}

int main_of(int argc, char** argv) {
  if (!ranks().leads() && std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
  Program app("Times a training step of charlm's, wordlm's and vision's presets.");
  Options options;
  std::string wanted = "all", device = "cpu";
  bool bare = false, json = false;
  int thread_count = 1;
  app.add_option("--preset", wanted, "a preset of an app; all: those of charlm")
      .show_default();
  app.add_option("--attention", options.attention,
                 "a mechanism, as name:option=value,option=value; default: the preset's");
  app.add_option("--precision", options.precision, "of products, and of their ceiling")
      .one_of({"f32", "bf16"})
      .show_default();
  add_plugin_option(app);
  app.add_flag("--bare", bare, "measure only without dropout and adaptive computation time");
  app.add_option("--threads", thread_count).between(1, 4096).show_default();
  const Option on = app.add_option("--device", device, "cpu, cuda or cuda:N").show_default();
  app.add_flag("--graph,!--no-graph", options.graph,
               "on a CUDA device: capture one step and replay it");
  app.add_option("--batch", options.batch, "examples per step; default: the preset's")
      .between(1, 65536);
  app.add_option("--runs", options.runs, "fewest measurements of a step")
      .between(1, 1000)
      .show_default();
  app.add_option("--shards", options.shards, "parts of a step's examples").between(1, 65536);
  const Option seconds =
      app.add_option("--seconds", options.seconds, "shortest time of a measurement, in seconds")
          .show_default();
  int compared = 1;
  app.add_option("--ranks", compared,
                 "compare this many processes of the CPU with one; --batch is of a rank, and ranks "
                 "measure as many steps as --runs says")
      .between(2, 4096)
      .excludes(on)
      .excludes(seconds);
  app.add_flag("--json", json, "print one JSON object per line");
  if (const auto status = app.parse(argc, argv)) return *status;
  const std::vector<std::string> presets = presets_of(wanted);
  require(!bare || !is_of_pictures(wanted),
          "--bare: is of language models, got --preset {}, whose step is timed whole alone; leave "
          "--bare out",
          wanted);
  if (compared > 1) {
    require(options.batch > 0, "--ranks: wants --batch, the examples of each rank");
    require(std::max<i64>(options.shards, compared) % compared == 0,
            "--shards: {} ranks want a number of shards that they divide evenly, got {}", compared,
            options.shards);
    for (const std::string& name : presets) {
      compare_ranks(compared, name, options.batch, shared_words(argc, argv), json);
    }
    return 0;
  }
  set_threads(thread_count);
  options.device = device_named(device);
  options.rate = gemm_rate(options.device, {}, stored_type(DType::f32, options.precision));
  for (const std::string& name : presets) {
    if (!bare) print(preset_row(name, false, options), json);
    if (!is_of_pictures(name)) print(preset_row(name, true, options), json);
  }
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_bench("train_bench", weft::bench::main_of, argc, argv);
}
