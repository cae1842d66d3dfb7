// Time and memory of attention mechanisms against length.
//
//     build/bench/attention_bench --attention full agglomerative --lengths 512,4096 --causal
//
// A row for each mechanism and length: median times of forward and backward, the products that the
// fact sheet counts and their share of the machine's GEMM rate, tokens a second, bytes saved for
// backward, and the peak of all bytes (inputs, outputs and gradients included). With --layer the
// whole layer is timed: projections, mechanism, output matrix. With --reference the definition in
// plain ops takes the place of the kernel: for `full`, attention that holds N × N, as unfused ones do.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "apps/common/device_option.h"
#include "autograd/gradcheck.h"
#include "autograd/tape.h"
#include "bench/measure.h"
#include "nn/attention.h"
#include "nn/initializer.h"
#include "ops/attention/mechanism.h"
#include "runtime/allocator.h"
#include "runtime/parallel.h"

namespace weft::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> attention{"full", "agglomerative"};
  std::vector<std::int64_t> lengths{512, 1024, 2048, 4096};
  std::int64_t batch = 1, heads = 8, key_width = 64, value_width = 64;
  int threads = 1;
  bool causal = false, layer = false, reference = false, json = false;
  double seconds = 1;
  std::string device_text = "cpu";
  Device device;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One forward and backward: its outputs come from `leaves`, which hold the gradients afterwards.
struct Case {
  std::vector<Variable> leaves;
  std::function<Variable()> forward;
};

Case operator_case(const AttentionSpec& spec, const Options& options, const AttentionSizes& sizes) {
  Case built;
  std::uint64_t seed = 1;
  for (const AttentionInput& input : spec.mechanism().inputs) {
    if (input.optional) continue;
    built.leaves.push_back(Variable::leaf(
        random_normal(input_shape(input, sizes), DType::f32, seed++).to(options.device)));
  }
  AttentionCall call;
  call.causal = options.causal;
  const auto run = options.reference ? spec.mechanism().reference : attend;
  built.forward = [=, leaves = built.leaves] { return run(spec, call, leaves); };
  return built;
}

Case layer_case(const std::string& spec, const Options& options, const AttentionSizes& sizes) {
  auto layer = std::make_shared<nn::Attention>(
      nn::AttentionOptions{.mechanism = spec, .width = sizes.d, .heads = sizes.H,
                           .causal = options.causal},
      DType::f32);
  initialize(*layer, 1);
  move_to(*layer, options.device);
  Case built;
  const Variable x = Variable::leaf(
      random_normal({sizes.B, sizes.N, sizes.d}, DType::f32, 1).to(options.device));
  for (const NamedParameter& p : parameters(*layer)) built.leaves.push_back(p.variable);
  built.leaves.push_back(x);
  built.forward = [=] {
    Context context = Context::evaluation();
    return (*layer)(context, x);
  };
  return built;
}

nlohmann::ordered_json row(const std::string& text, std::int64_t length, const Options& options,
                           double gemm) {
  const AttentionSpec spec(text);
  const AttentionSizes sizes{.B = options.batch, .N = length, .S = length, .H = options.heads,
                             .E = options.key_width, .M = options.value_width,
                             .d = options.heads * options.value_width};
  CachingAllocator& memory = allocator(options.device);
  memory.trim();
  const Case built =
      options.layer ? layer_case(text, options, sizes) : operator_case(spec, options, sizes);
  const Tensor dout = random_normal(built.forward().shape(), DType::f32, 99).to(options.device);
  std::vector<double> forward, backward;
  std::size_t saved = 0;
  memory.reset_peak();
  double total = 0;
  for (int run = 0; run < 3 || (total < options.seconds && run < 1000); ++run) {
    for (const Variable& leaf : built.leaves) leaf.place()->clear();
    Tape tape;
    const std::size_t before = memory.counts().live;
    wait_for(options.device);
    const auto start = Clock::now();
    Variable out = built.forward();
    wait_for(options.device);
    const auto middle = Clock::now();
    saved = memory.counts().live - before -
            static_cast<std::size_t>(out.value().count()) * size_of(DType::f32);
    tape.backward(out, dout);
    wait_for(options.device);
    const auto end = Clock::now();
    forward.push_back(std::chrono::duration<double>(middle - start).count());
    backward.push_back(std::chrono::duration<double>(end - middle).count());
    if (run > 0) total += forward.back() + backward.back();
  }
  forward.erase(forward.begin());  // the first run warms up
  backward.erase(backward.begin());
  const AttentionCost cost = spec.mechanism().cost(spec, sizes, options.causal, DType::f32);
  const double tokens = static_cast<double>(sizes.B * sizes.N);
  const double seconds = median(forward) + median(backward);
  nlohmann::ordered_json json = machine(options.device);
  json.update({{"attention", spec.text()},
               {"layer", options.layer},
               {"reference", options.reference},
               {"causal", options.causal},
               {"batch", sizes.B},
               {"length", length},
               {"heads", sizes.H},
               {"key_width", sizes.E},
               {"value_width", sizes.M},
               {"forward_ms", 1e3 * median(forward)},
               {"backward_ms", 1e3 * median(backward)},
               {"tokens_per_second", tokens / seconds},
               {"ns_per_token", 1e9 * seconds / tokens},
               {"saved_bytes", saved},
               {"peak_bytes", memory.counts().peak}});
  if (!options.layer) {
    const double ceiling = gemm * (options.device == Device{} ? options.threads : 1);
    const double operations = cost.forward_operations + cost.backward_operations;
    json.update({{"operations", operations},
                 {"gflops", operations / seconds / 1e9},
                 {"gemm_gflops", ceiling / 1e9},
                 {"share_of_gemm", operations / seconds / (ceiling)}});
  }
  return json;
}

int main_of(int argc, char** argv) {
  CLI::App app{"time and memory of attention mechanisms against length"};
  Options o;
  app.add_option("--attention", o.attention, "specifications")->capture_default_str();
  app.add_option("--lengths", o.lengths)->delimiter(',')->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch", o.batch)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--heads", o.heads, "heads, or classes")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--key-width", o.key_width, "of a head")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--value-width", o.value_width, "of a head")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--threads", o.threads)->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--device", o.device_text, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--seconds", o.seconds, "least time of a measurement")->capture_default_str();
  app.add_flag("--causal", o.causal);
  CLI::Option* const layer = app.add_flag("--layer", o.layer, "with projections and output matrix");
  app.add_flag("--reference", o.reference, "the definition in plain ops, not the kernel")
      ->excludes(layer);
  app.add_flag("--json", o.json, "one object a line");
  CLI11_PARSE(app, argc, argv);
  set_threads(o.threads);
  o.device = device_named(o.device_text);
  const double gemm = gemm_rate(o.device);
  for (const std::string& spec : o.attention) {
    for (const std::int64_t length : o.lengths) {
      const nlohmann::ordered_json result = row(spec, length, o, gemm);
      if (o.json) {
        fmt::print("{}\n", result.dump());
      } else {
        fmt::print("{:<24} N {:>7}  forward {:9.3f} ms  backward {:9.3f} ms  {:9.1f} ns/token  "
                   "{:3.0f} % of GEMM  peak {:7.1f} MiB\n",
                   spec, length, result["forward_ms"].get<double>(),
                   result["backward_ms"].get<double>(), result["ns_per_token"].get<double>(),
                   100 * result.value("share_of_gemm", 0.0),
                   result["peak_bytes"].get<double>() / (1 << 20));
      }
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_main("attention_bench", weft::bench::main_of, argc, argv);
}
