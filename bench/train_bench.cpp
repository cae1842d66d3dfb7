// Tokens a second of one training step (forward, backward, optimizer) of charlm's presets, beside
// the ceiling that the machine's GEMM rate sets.
//
//     build/bench/train_bench [--preset NAME] [--bare] [--threads N] [--device cuda] [--batch N] [--json]
//
// On a CUDA device steps are queued as charlm queues them, by default as replays of one graph.
// The step is timed as the preset has it, and bare: no dropout, no adaptive computation time.
// The arithmetic counts the products alone, three times the forward pass (seven products for five
// of attention's two), causal pairs counted once; the ceiling is the rate of a 2048³ product on one
// thread, times the threads.
#include <cstdio>

#include <CLI/CLI.hpp>

#include "apps/charlm/evaluate.h"
#include "apps/common/device_option.h"
#include "apps/common/queued_steps.h"
#include "apps/common/text.h"
#include "autograd/tape.h"
#include "bench/measure.h"
#include "nn/optimizer.h"
#include "ops/attention/mechanism.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace weft::bench {

using namespace charlm;
namespace {

// Additions and multiplications of all products of one step, per token.
double products_per_token(const Settings& settings, const std::vector<NamedParameter>& parameters) {
  const UniversalTransformerConfig& m = settings.model;
  double forward = 0;
  for (const NamedParameter& p : parameters) {
    const bool inner = p.name.starts_with("block") || p.name.starts_with("convolution");
    const Shape& shape = p.variable.shape();
    const bool looked_up = p.name == "position" || p.name == "depth" || p.name.starts_with("halting");
    if (shape.rank() < 2 || looked_up) continue;
    forward += 2.0 * static_cast<double>(shape.count()) * (inner && m.shared ? m.depth : 1);
  }
  const AttentionSpec spec(m.attention);
  const std::int64_t e = m.width / m.heads;
  const AttentionSizes sizes{.B = 1, .N = m.length, .S = m.length, .H = m.heads, .E = e, .M = e,
                             .d = m.width};
  const AttentionCost cost = spec.mechanism().cost(spec, sizes, true, DType::f32);
  return 3 * forward + (cost.forward_operations + cost.backward_operations) *
                           static_cast<double>(m.depth) / static_cast<double>(m.length);
}

nlohmann::ordered_json row(const std::string& preset_name, bool bare, std::int64_t batch,
                           Device device, bool graph, double rate, double seconds) {
  Settings settings = preset(preset_name);
  settings.batch = batch;
  if (bare) {
    settings.model.attention_dropout = settings.model.residual_dropout = 0;
    settings.model.output_dropout = 0;
    settings.model.act = false;
  }
  const Model model = new_model(settings);
  move_to(*model.network, device);
  const Text text = load_text("builtin", "text8");
  const Parts parts = split_text(text, parse_split("60/30/10"), settings.model.length);
  const Task task = training_task(model, parts);
  const std::vector<NamedParameter>& parameters = task.parameters;
  const auto optimizer = make_optimizer(settings.optimizer, parameters);
  TrainOptions options;
  options.graph = graph;
  options.learning_rate = [&](std::int64_t) { return settings.lr; };
  const auto queue = queue_for(task, options, *optimizer);
  std::uint32_t number = 0;
  std::uint64_t system_allocations = 0;
  const auto step = [&] {
    ++number;
    if (queue) {  // where the queue is full, a step ends for each that begins
      queue->submit(number);
      if (!queue->room()) queue->take();
    } else {
      for (const NamedParameter& p : parameters) p.variable.place()->clear();
      Tape tape;
      tape.backward(task.loss(task.batch(number), {.number = number}).loss);
      optimizer->step(settings.lr);
    }
    if (number == 3) system_allocations = allocator(device).counts().system_allocations;
  };
  const Times times = measure(step, 5, 15, seconds);
  while (queue && queue->any()) queue->take();
  const auto tokens = static_cast<double>(batch * settings.model.length);
  const double work = products_per_token(settings, parameters);
  const double ceiling = rate * (device == Device{} ? threads() : 1) / work;
  nlohmann::ordered_json json = machine(device);
  json.update({{"preset", preset_name},
               {"bare", bare},
               {"graph", queue && graph},
               {"batch", batch},
               {"length", settings.model.length},
               {"parameters", parameter_count(*model.network)},
               {"tokens_per_second", tokens / times.median},
               {"ms_median", 1e3 * times.median},
               {"ms_p10", 1e3 * times.p10},
               {"ms_p90", 1e3 * times.p90},
               {"products_per_token", work},
               {"gemm_gflops", rate / 1e9},
               {"ceiling_tokens_per_second", ceiling},
               {"share_of_ceiling", tokens / times.median / ceiling},
               {"system_allocations_after_step_3",
                allocator(device).counts().system_allocations - system_allocations},
               {"peak_bytes", allocator(device).counts().peak}});
  return json;
}

int main_of(int argc, char** argv) {
  CLI::App app{"times one training step of charlm's presets"};
  std::string wanted = "all";
  bool bare = false, json = false;
  int thread_count = 1;
  std::int64_t batch = 32;
  double seconds = 3;
  std::string device_text = "cpu";
  bool graph = true;
  app.add_option("--preset", wanted, "one of charlm's presets, or all")->capture_default_str();
  app.add_flag("--bare", bare, "only without dropout and adaptive computation time");
  app.add_option("--threads", thread_count)->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--device", device_text, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_flag("--graph,!--no-graph", graph, "on a CUDA device: replay one captured step");
  app.add_option("--batch", batch)->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--seconds", seconds, "least time of a measurement")->capture_default_str();
  app.add_flag("--json", json, "one object a line");
  CLI11_PARSE(app, argc, argv);
  set_threads(thread_count);
  const Device device = device_named(device_text);
  const double rate = gemm_rate(device);
  for (const Preset& known : presets()) {
    if (wanted != "all" && wanted != known.name) continue;
    for (const bool without : {false, true}) {
      if (bare && !without) continue;
      const nlohmann::ordered_json result = row(known.name, without, batch, device, graph, rate, seconds);
      if (json) {
        fmt::print("{}\n", result.dump());
      } else {
        fmt::print("{:<30}{:<6} {:8.0f} tokens/s  {:6.2f} ms  {:3.0f} % of {:.0f}\n", known.name,
                   without ? "bare" : "whole", result["tokens_per_second"].get<double>(),
                   result["ms_median"].get<double>(),
                   100 * result["share_of_ceiling"].get<double>(),
                   result["ceiling_tokens_per_second"].get<double>());
      }
      std::fflush(stdout);
    }
  }
  if (wanted != "all") preset(wanted);  // an unknown name is an error
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_main("train_bench", weft::bench::main_of, argc, argv);
}
