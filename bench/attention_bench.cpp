// Time and memory of attention against length.
//
//     build/bench/attention_bench --out runs/bench                 every mechanism, the CPU and a GPU
//     build/bench/attention_bench --attention full agglomerative --lengths 512,4096 --causal
//     build/bench/attention_bench --attention local linear --peers --python torch2/bin/python
//
// A row for each mechanism, length and device: median, 10th and 90th percentile of the times of
// forward and backward; the bytes saved for backward and the peak above the inputs; the operations,
// exponentials and bytes of the fact sheet, the resulting rates, and their shares of the device's
// ceilings, measured in the same run (bench/ceilings.h). Without --attention all registered
// mechanisms run, and full attention that holds N × N, ours and PyTorch's where it is installed;
// with --peers PyTorch's forms run beside every mechanism. At the end: exponents of time and
// memory, and from which length a mechanism is faster than fused full attention.
//
// With --out FOLDER rows are written to FOLDER/rows.jsonl as they are measured, and the same
// command resumes where it was interrupted; FOLDER/rows.csv has them as a table, FOLDER/curves.json
// is the input of bench/plot. With --layer the whole layer is timed, projections and output matrix
// included, with --blocks a number of transformer blocks. With --queries N the lengths count keys
// alone, of which each of N queries sees all, as in decoding, which uses forward alone. With
// --reference the definition in plain ops replaces the kernel. With --core mega's moving average
// and attention are timed alone, beside operators.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "apps/command_line/device_option.h"
#include "apps/command_line/options.h"
#include "apps/command_line/progress.h"
#include "bench/ceilings.h"
#include "bench/entrants.h"
#include "bench/stamp.h"
#include "bench/summary.h"
#include "nn/file.h"
#include "nn/precision.h"
#include "runtime/cuda/device.h"
#include "runtime/host_memory.h"
#include "runtime/parallel.h"

namespace weft::bench {
namespace {

struct Options {
  Field field;
  std::vector<std::string> devices;
  bool json = false, quick = false;
  std::string out;
  std::vector<std::string> learnt;
  double memory_gib = 0;  // 0: half of the free memory
  Budgets budgets{.row_seconds = 60};
};

// Ctrl-C and SIGTERM set this flag; the second one ends the program.
volatile std::sig_atomic_t caught = 0;

void watch_signals() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { caught = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

bool interrupted() { return caught != 0; }

// The devices that were named, or the CPU and the first CUDA device: a process computes on one.
// Times of the emulated device would be meaningless.
std::vector<Device> devices_of(const Options& o) {
  std::vector<Device> devices;
  for (const std::string& text : o.devices) {
    const Device device = device_named(text);
    require(std::ranges::count(devices, device) == 0, "--device: {} is named twice", text);
    devices.push_back(device);
  }
  if (!devices.empty()) return devices;
  devices.push_back({});
  const std::vector<CudaDevice>& found = cuda_devices().all;
  if (!found.empty() && !found[0].emulated) devices.push_back({DeviceType::cuda, 0});
  return devices;
}

// Half of the bytes that are free on the host, or of the device's memory.
double memory_of(Device device) {
  const std::size_t bytes =
      device.type == DeviceType::cpu
          ? available_host_memory()
          : cuda_devices().all.at(static_cast<std::size_t>(device.index)).memory;
  return double(bytes) / 2;
}

void print_row(const Row& row, Progress& progress) {
  const auto at = fmt::format("{:<24} {} {:>7} ", row["name"].get<std::string>(),
                              letter_of_length(row), row["length"].get<i64>());
  if (row["kind"] != "row") {
    const bool cut = row["kind"] == "cut";
    return progress.print(at + (cut ? "left out at this and greater lengths: " : "failed: ") +
                          row["reason"].get<std::string>());
  }
  const double forward = row["forward_ms"];
  const double backward = row["backward_ms"].is_null() ? 0 : row["backward_ms"].get<double>();
  const std::string share =  // none where products are not all of a step's work
      row.contains("share_of_gemm")
          ? fmt::format("{:.0f} %", 100 * row["share_of_gemm"].get<double>())
          : "-";
  const double peak = row["peak_bytes"].is_null() ? 0 : row["peak_bytes"].get<double>();
  const char* const queries = letter_of_length(row) == 'S' ? "queries" : "length";
  const double tokens = row[queries].get<double>() * row["batch"].get<double>();
  progress.print(fmt::format("{}{:9.3f} {:>9} {:9.1f} {:>6} {:8.1f}", at, forward,
                             backward > 0 ? fmt::format("{:.3f}", backward) : "none",
                             1e6 * (forward + backward) / tokens, share, peak / (1 << 20)));
}

// Of print_row's columns.
void print_head(Progress& progress) {
  for (const auto& names : {std::array{"forward", "backward", "a token", "of the", "peak"},
                            std::array{"ms", "ms", "ns", "GEMM", "MiB"}}) {
    progress.print(fmt::format("{:<35}{:>9} {:>9} {:>9} {:>6} {:>8}", "", names[0], names[1],
                               names[2], names[3], names[4]));
  }
}

Row identity_of(const Options& o, Device device) {
  const Settings& s = o.field.settings;
  Row identity = {{"format", results_format}};
  identity.update(machine(device));
  identity.update({{"settings", s.text()},
                   {"layer", s.layer},
                   {"blocks", s.blocks},
                   {"queries", s.queries},
                   {"causal", s.causal},
                   {"batch", s.batch},
                   {"heads", s.heads},
                   {"key_width", s.key_width},
                   {"value_width", s.value_width}});
  return identity;
}

// A run on one device: measures, then prints the summary of the rows. Returns it for curves.json.
Row run_on(Device device, const Options& o, Results& results, Progress& progress,
           double run_seconds, Outcome& sum) {
  const Say say = [&](const std::string& line) { progress.print(line); };
  const std::vector<Candidate> candidates = candidates_of(o.field, say);
  check_learnt(candidates, o.field.settings);
  const bool hurried = o.field.settings.seconds == 0;
  const Ceilings best = ceilings(device, hurried ? Effort{.runs = 1, .seconds = 0} : Effort{},
                                 stored_type(DType::f32, o.field.settings.precision));
  Run run{.identity = identity_of(o, device),
          .budgets = o.budgets,
          .seconds = o.field.settings.seconds,
          .stop = interrupted};
  run.budgets.run_seconds = run_seconds;
  run.budgets.memory_bytes = o.memory_gib > 0 ? o.memory_gib * (1 << 30) : memory_of(device);
  progress.print(fmt::format(
      "{} ({}), {} thread{}, {}\nproducts (GEMM) {:.1f} GFLOP/s, copy {:.1f} GB/s, exp {:.2f} G/s; "
      "the library is {}{}",
      run.identity["device"].get<std::string>(), run.identity["isa"].get<std::string>(), threads(),
      threads() == 1 ? "" : "s", run.identity["matmul"].get<std::string>(), best.gemm / 1e9,
      best.copy / 1e9, best.exp / 1e9, run.identity["tests"].get<std::string>(),
      run.identity["tests"] == "untested" ? " (./weft test)" : ""));
  run.entrants = entrants_of(candidates, o.field, device, best, interrupted, say);
  print_head(progress);
  i64 shorter = 0;
  run.begins = [&](const std::string& name, i64 length, int number, int count, double left) {
    const std::string line =
        fmt::format("{}/{}  {} {}  {}, about {} left", number, count,
                    letter_of_length(run.identity), length, name, duration(left));
    if (length > shorter) {
      progress.report(line);  // without a terminal, once a length
    } else {
      progress.update(line);
    }
    shorter = length;
  };
  run.added = [&](const Row& row) {
    if (o.json) {
      fmt::print("{}\n", row.dump());
      std::fflush(stdout);
    }
    print_row(row, progress);
  };
  const Outcome outcome = run_curves(run, results);
  sum.measured += outcome.measured, sum.kept += outcome.kept, sum.cut += outcome.cut;
  sum.failed += outcome.failed, sum.interrupted = outcome.interrupted;
  const auto curves = curves_of(rows_of_run(results.lines(), run.identity));
  const bool several = !curves.empty() && (curves.size() > 1 || curves[0].rows.size() > 2);
  if (several) progress.print("\n" + table_of(curves));
  return summary_of(results.lines(), run.identity);
}

void add_options(const weft::Options& app, Options& o) {
  Settings& s = o.field.settings;
  app.add_option("--attention", o.field.attention, "specifications; default: all, and baselines");
  app.add_option("--lengths", o.field.lengths, "default: 256 … 65536, linear ones to 1048576")
      .comma_separated()
      .positive();
  app.add_option("--batch", s.batch).positive().show_default();
  app.add_option("--heads", s.heads, "number of heads, or classes")
      .positive()
      .show_default();
  app.add_option("--key-width", s.key_width, "width of queries and keys of a head")
      .positive()
      .show_default();
  app.add_option("--value-width", s.value_width, "width of values of a head")
      .positive()
      .show_default();
  app.add_option("--threads", s.threads).between(1, 4096).show_default();
  app.add_option("--device", o.devices,
                 "cpu, cuda or cuda:N; default: the CPU and the first CUDA device");
  const Option seconds =
      app.add_option("--seconds", s.seconds, "shortest measuring time of a row, in seconds")
          .non_negative()
          .show_default();
  const Option causal = app.add_flag("--causal", s.causal);
  const Option layer =
      app.add_flag("--layer", s.layer, "measure whole layers, with projections and output matrix");
  const Option blocks = app.add_option("--blocks", s.blocks, "measure this many transformer blocks")
                                  .positive()
                                  .excludes(layer);
  const Option core =
      app.add_flag("--core", s.core,
                   "measure mega's moving average and attention only, without its projections")
          .excludes(layer)
          .excludes(blocks);
  app.add_option("--precision", s.precision, "of inputs and outputs")
      .one_of({"f32", "bf16"})
      .show_default()
      .excludes(core);
  app.add_option("--queries", s.queries,
                 "number of queries; --lengths then gives the number of keys")
      .positive()
      .excludes(causal)
      .excludes(layer)
      .excludes(blocks);
  app.add_option(
         "--learnt", o.learnt,
         "NAME=NUMBER: value of all elements of a learnt input, such as span=0.125 after training")
      .excludes(core)
      .excludes(blocks);
  app.add_option("--hidden", s.hidden,
                 "units of the blocks' feed-forward layer; default: 4 × width")
      .positive()
      .needs(blocks);
  app.add_flag("--reference", o.field.reference,
               "measure the definition in plain ops instead of the kernels")
      .excludes(layer)
      .excludes(core)
      .excludes(blocks);
  app.add_flag("--json", o.json, "print one JSON object per line");
  app.add_option("--out", o.out,
                 "folder for the rows; the same command resumes an interrupted run");
  const Option row = app.add_option("--row-seconds", o.budgets.row_seconds,
                                    "longest time of a row, in seconds; 0: no limit")
                         .non_negative()
                         .show_default();
  const Option all = app.add_option("--run-seconds", o.budgets.run_seconds,
                                    "longest time of the run, in seconds; 0: no limit")
                         .non_negative()
                         .show_default();
  app.add_option(
         "--memory", o.memory_gib,
         "largest memory of a row with its inputs, in GiB; default: half of the free memory")
      .positive();
  app.add_flag("--quick", o.quick,
               "a run within five minutes: --seconds 0.05 --row-seconds 4 --run-seconds 270")
      .excludes(seconds)
      .excludes(row)
      .excludes(all);
  app.add_flag(
         "--peers", o.field.every_peer,
         "also measure PyTorch for every mechanism; default: for full, if --attention is not given")
      .excludes(app.add_flag("!--no-peers", o.field.peers, "without PyTorch"))
      .excludes(layer)
      .excludes(core)
      .excludes(blocks);
  app.add_option("--python", o.field.python,
                 "Python with PyTorch; default: python3, then /usr/bin/python3");
  add_plugin_option(app);
  app.add_printing_flag(
      "--library-hash", [] { fmt::print("{}\n", library_hash); },
      "print the hash of this build's library, as in rows and in the stamp of ./weft test");
}

std::pair<std::string, double> named_number(const std::string& text) {
  const std::size_t equals = text.find('=');
  char* end = nullptr;
  const double number =
      equals == std::string::npos ? 0 : std::strtod(text.c_str() + equals + 1, &end);
  require(end != nullptr && end > text.c_str() + equals + 1 && *end == 0,
          "--learnt: wanted NAME=NUMBER, got '{}'", text);
  return {text.substr(0, equals), number};
}

int main_of(int argc, char** argv) {
  Program app("Measures time and memory of attention mechanisms against length.");
  Options o;
  add_options(app, o);
  if (const auto status = app.parse(argc, argv)) return *status;
  if (o.quick) {
    o.field.settings.seconds = 0.05;
    o.budgets.row_seconds = 4, o.budgets.run_seconds = 270;
  }
  for (const std::string& text : o.learnt) {
    const auto [name, added] = o.field.settings.learnt.insert(named_number(text));
    require(added, "--learnt: {} occurs twice; give one number for it", name->first);
  }
  o.field.row_seconds = o.budgets.row_seconds;
  std::sort(o.field.lengths.begin(), o.field.lengths.end());
  const Stopwatch watch;
  set_threads(o.field.settings.threads);
  const std::vector<Device> devices = devices_of(o);
  Progress progress(o.json);
  std::unique_ptr<Results> results;
  if (o.out.empty()) {
    results = std::make_unique<Results>();
  } else {
    std::filesystem::create_directories(o.out);
    results = std::make_unique<Results>(o.out + "/rows.jsonl");
    if (results->torn()) progress.print(o.out + "/rows.jsonl: an incomplete last line was removed");
  }
  watch_signals();
  Outcome sum;
  Row summaries = Row::array(), rows = Row::array();
  for (std::size_t i = 0; i < devices.size() && !interrupted(); ++i) {
    const double rest = (o.budgets.run_seconds - watch.seconds()) / double(devices.size() - i);
    const double limit = o.budgets.run_seconds > 0 ? std::max(rest, 1.0) : 0;
    summaries.push_back(run_on(devices[i], o, *results, progress, limit, sum));
    for (Row& row : rows_of_run(results->lines(), summaries.back())) {
      rows.push_back(std::move(row));
    }
  }
  progress.print(
      fmt::format("{} rows measured, {} kept from an earlier run, {} left out, {} failed, "
                  "{}{}",
                  sum.measured, sum.kept, sum.cut, sum.failed, duration(watch.seconds()),
                  sum.interrupted ? "; interrupted: the same command resumes" : ""));
  require(interrupted() || sum.measured + sum.kept + sum.cut + sum.failed > 0,
          "--lengths: none of them is a length of what was to be measured; the lines above say why");
  if (!o.out.empty()) {
    write_file(o.out + "/rows.csv", csv(rows));
    write_file(o.out + "/curves.json", summaries.dump(1) + "\n");
    progress.print(o.out + ": rows.jsonl, rows.csv, curves.json");
  }
  if (interrupted()) return 128 + caught;
  return sum.failed > 0 ? 1 : 0;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_bench("attention_bench", weft::bench::main_of, argc, argv);
}
