#include "apps/attend/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/core.h>

#include "apps/attend/derive.h"
#include "apps/command_line/device_option.h"
#include "apps/command_line/progress.h"
#include "autograd/tape.h"
#include "runtime/allocator.h"
#include "runtime/listed.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

// A row of the table, and the notes about it.
struct Measured {
  Compared row;
  AttentionSizes sizes = {};
  std::vector<std::string> said = {};
  Tensor out = {};  // f64
};

// Sets the row's median time, over as many passes as fit into a third of a second and at least
// three, after one warm-up pass; and the peak memory of one pass.
Tensor timed(const AttentionSpec& spec, const AttentionCall& call,
             const std::vector<Variable>& inputs, Device device, Compared& row) {
  constexpr double least_seconds = 0.3;
  const Tape::Pause pause;
  Tensor out = attend(spec, call, inputs).out.value();
  std::vector<double> seconds;
  const Stopwatch whole;
  while (seconds.size() < 3 || whole.seconds() < least_seconds) {
    out = {};
    wait_for(device);
    const std::size_t before = allocator(device).counts().live;
    allocator(device).reset_peak();
    const Stopwatch watch;
    out = attend(spec, call, inputs).out.value();
    wait_for(device);
    seconds.push_back(watch.seconds());
    row.peak_bytes = static_cast<double>(allocator(device).counts().peak - before);
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  row.milliseconds = 1e3 * *middle;
  return out;
}

Measured measure(const std::string& text, const Given& given, const AttendCommand& command,
                 std::set<std::string>& used) {
  const AttentionSpec spec(text);
  Measured measured{.row = {.specification = spec.text()}};
  try {
    AttentionCall call;
    call.causal = command.causal;
    call.random = {command.seed, 0, 0};
    call.seed = command.seed;
    Derived derived = derived_inputs(given, spec, command.causal, command.seed, used);
    measured.said = std::move(derived.said);
    const Device device = device_named(command.device);
    std::vector<Variable> inputs;
    for (const Tensor& input : derived.inputs) {
      inputs.emplace_back(input.defined() ? input.to(device) : input);
    }
    measured.sizes = bound(spec, call, inputs).sizes;
    take_lengths(given, spec.mechanism().masks, measured.sizes, call);
    const Tensor out = timed(spec, call, inputs, device, measured.row);
    measured.out = out.to(Device{}).to(DType::f64).packed();
  } catch (const Error& error) {
    measured.row.refused = error.what();
  }
  return measured;
}

void set_error(Measured& measured, const Tensor& first) {
  // A block's heads are one axis, [B, N, d'].
  const Tensor& out = measured.out;
  const bool alike =
      out.size(0) == first.size(0) && out.size(1) == first.size(1) && out.count() == first.count();
  if (!alike) {
    measured.row.refused =
        fmt::format("its output is {}, the first one's {}", measured.out.shape(), first.shape());
    return;
  }
  const std::span own(measured.out.data<double>(), static_cast<std::size_t>(first.count()));
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double wanted = first.data<double>()[i];
    difference += (own[i] - wanted) * (own[i] - wanted);
    size += wanted * wanted;
  }
  measured.row.error = difference == 0 ? 0 : std::sqrt(difference / size);
}

void print_table(const std::vector<Compared>& rows) {
  std::size_t width = 9;
  for (const Compared& row : rows) width = std::max(width, row.specification.size());
  fmt::print("{:<{}}  {:>14}  {:>10}  {:>13}  {:>10}\n", "attention", width, "relative error", "ms",
             "times as fast", "peak MiB");
  for (const Compared& row : rows) {
    if (!row.refused.empty()) {
      fmt::print("{:<{}}  – {}\n", row.specification, width, row.refused);
      continue;
    }
    const bool first = &row == rows.data();
    fmt::print("{:<{}}  {:>14}  {:>10.3f}  {:>13.2f}  {:>10.2f}\n", row.specification, width,
               first ? "–" : fmt::format("{:.3g}", row.error), row.milliseconds,
               rows[0].milliseconds / row.milliseconds, row.peak_bytes / (1 << 20));
  }
}

// The tensors of the file that no mechanism read.
std::string surplus(const Given& given, std::set<std::string> used) {
  used.insert({"lengths", "query_lengths"});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : given.tensors) {
    if (!used.contains(name)) names.push_back(name);
  }
  return listed(names).text();
}

}  // namespace

int compare(const AttendCommand& command) {
  require(command.out.empty() || command.out.ends_with(".png"),
          "--out {}: --compare writes a picture, wanted a name that ends with .png", command.out);
  const std::vector<std::string> specifications = split_specifications(command.compare);
  for (const std::string& text : specifications) AttentionSpec{text};
  std::set<std::string> used;
  const Given given =
      read_given(command.in, layout_named(command.layout), command.dtype, known_inputs());
  std::vector<Measured> all;
  Progress progress;
  for (const std::string& text : specifications) {
    progress.update(text);
    all.push_back(measure(text, given, command, used));
    require(all[0].row.refused.empty(), "{}", all[0].row.refused);
    if (all.back().row.refused.empty()) set_error(all.back(), all[0].out);
    if (all.size() > 1) all.back().out = {};
  }
  progress.clear();
  const AttentionSpec first(specifications[0]);
  const std::string what = fmt::format("{}, {}{}, {}, {} thread{}", described(first, all[0].sizes),
                                       name_of(given.type), command.causal ? ", causal" : "",
                                       command.device, threads(), threads() == 1 ? "" : "s");
  fmt::print("read {}: {}\n", command.in, what);
  const std::string doubt = layout_doubt(all[0].sizes, given.layout);
  if (!doubt.empty()) fmt::print("     {}\n", doubt);
  std::vector<Compared> rows;
  for (const Measured& measured : all) {
    rows.push_back(measured.row);
    if (!measured.said.empty()) {
      fmt::print("{}: {} (--seed {})\n", measured.row.specification, listed(measured.said, "; "),
                 command.seed);
    }
  }
  const std::string unread = surplus(given, used);
  if (!unread.empty()) fmt::print("not read: {}\n", unread);
  fmt::print("\n");
  print_table(rows);
  if (!command.out.empty()) {
    draw_comparison(rows, what, command.out);
    fmt::print("\nwrote {}\n", command.out);
  }
  return 0;
}

}  // namespace weft
