#include "bench/entrants.h"

#include <memory>

#include <fmt/core.h>

#include "bench/passes.h"
#include "bench/peer.h"
#include "bench/summary.h"
#include "runtime/allocator.h"

namespace weft::bench {
namespace {

// 256, 512, … 65,536, and on to 1 Mi where time and memory stay linear.
std::vector<std::int64_t> lengths_of(const Field& field, const Candidate& candidate,
                                     Device device) {
  if (!field.lengths.empty()) return field.lengths;
  constexpr std::int64_t shortest = 256, longest = 65536, most = 1 << 20;
  const bool linear = stays_linear(candidate, field.settings, device, longest, most);
  std::vector<std::int64_t> lengths;
  for (std::int64_t n = shortest; n <= (linear ? most : longest); n *= 2) lengths.push_back(n);
  return lengths;
}

void add_times(Row& row, const char* name, const std::vector<double>& seconds) {
  const Quantiles times = quantiles(seconds);
  row[fmt::format("{}_ms", name)] = 1e3 * times.median;
  row[fmt::format("{}_p10_ms", name)] = 1e3 * times.p10;
  row[fmt::format("{}_p90_ms", name)] = 1e3 * times.p90;
}

// What the fact sheet says, and the rates and shares that follow.
void add_rates(Row& row, const Expected& sheet, double seconds, const Ceilings& best) {
  row.update({{"operations", sheet.operations},
              {"exponentials", sheet.exponentials},
              {"moved_bytes", sheet.moved_bytes},
              {"expected_saved_bytes", sheet.saved_bytes},
              {"expected_peak_bytes", sheet.peak_bytes},
              {"gflops", sheet.operations / seconds / 1e9},
              {"gexps", sheet.exponentials / seconds / 1e9},
              {"gbytes_per_second", sheet.moved_bytes / seconds / 1e9},
              {"gemm_gflops", best.gemm / 1e9},
              {"exp_gexps", best.exp / 1e9},
              {"copy_gbytes_per_second", best.copy / 1e9},
              {"share_of_gemm", sheet.operations / seconds / best.gemm},
              {"share_of_exp", sheet.exponentials / seconds / best.exp},
              {"share_of_copy", sheet.moved_bytes / seconds / best.copy}});
}

Row row_of(const Candidate& candidate, std::int64_t length, const Field& field, Device device,
           const Ceilings& best, const std::function<bool()>& stop) {
  allocator(device).trim();
  const Subject timed = subject(candidate, field.settings, length, device);
  const PassLimits limits{.seconds = field.settings.seconds, .most_seconds = field.row_seconds};
  const Passes passes = measure_passes(timed, device, limits, steady_seconds, stop);
  Row row = {{"attention", candidate.spec.text()},
             {"reference", candidate.reference},
             {"runs", passes.forward.size()}};
  add_times(row, "forward", passes.forward);
  add_times(row, "backward", passes.backward);
  std::vector<double> both = passes.forward;
  for (std::size_t i = 0; i < both.size(); ++i) both[i] += passes.backward[i];
  const Quantiles sums = quantiles(both);
  const double seconds = (row["forward_ms"].get<double>() + row["backward_ms"].get<double>()) / 1e3;
  const double tokens =
      double(field.settings.batch) * double(field.settings.queries_at(length));
  row.update({{"p10_ms", 1e3 * sums.p10},
              {"p90_ms", 1e3 * sums.p90},
              {"tokens_per_second", tokens / seconds},
              {"ns_per_token", 1e9 * seconds / tokens},
              {"saved_bytes", passes.saved_bytes},
              {"peak_bytes", passes.peak_bytes}});
  if (!field.settings.layer && field.settings.blocks == 0) {
    add_rates(row, expected(candidate, field.settings, length, device), seconds, best);
  }
  return row;
}

std::vector<std::string> peer_command(const Field& field, const std::string& python,
                                      Device device) {
  const Settings& s = field.settings;
  std::vector<std::string> command{
      python,          WEFT_SOURCE_ROOT "/bench/peers/torch_attention.py",
      "--device",      device == Device{} ? "cpu" : "cuda",
      "--threads",     std::to_string(s.threads),
      "--batch",       std::to_string(s.batch),
      "--heads",       std::to_string(s.heads),
      "--key-width",   std::to_string(s.key_width),
      "--value-width", std::to_string(s.value_width),
      "--seconds",     fmt::format("{}", s.seconds),
      "--row-seconds", fmt::format("{}", field.row_seconds)};
  if (s.queries > 0) command.insert(command.end(), {"--queries", std::to_string(s.queries)});
  if (s.causal) command.push_back("--causal");
  return command;
}

// PyTorch's full attention in each of its forms; none, and why, where it is not there.
void add_peers(std::vector<Entrant>& entrants, const Field& field, Device device,
               const Ceilings& best, const Say& say) {
  std::vector<std::string> pythons{field.python};
  if (field.python.empty()) pythons = {"python3", "/usr/bin/python3"};
  std::string why;
  for (const std::string& python : pythons) {
    try {
      const auto peer = std::make_shared<Peer>(peer_command(field, python, device));
      const Row hello = peer->read();
      const std::string version = hello.at("version");
      for (const std::string form : hello.at("forms")) {
        const Candidate like{AttentionSpec(baseline), form == "naive"};
        const auto sheet = [=](std::int64_t n) {
          return expected(like, field.settings, n, device);
        };
        entrants.push_back(
            {"PyTorch " + version.substr(0, version.find_first_of("+a")) + " (" + form + ")",
             lengths_of(field, like, device), sheet, [=](std::int64_t n) {
               Row row = peer->ask(fmt::format("{} {}", form, n));
               row["peer_version"] = version;
               const double ms =
                   row.at("forward_ms").get<double>() + row.at("backward_ms").get<double>();
               add_rates(row, sheet(n), ms / 1e3, best);
               for (const char* ours : {"expected_saved_bytes", "expected_peak_bytes"})
                 row.erase(ours);
               return row;
             }});
      }
      return;
    } catch (const std::exception& error) {
      why += (why.empty() ? "" : "; ") + python + ": " + error.what();
    }
  }
  say("PyTorch: left out (" + why + ")");
}

// Why these settings leave a mechanism out; empty: they do not.
std::string unfit(const AttentionSpec& spec, const Settings& settings) {
  const Mechanism& mechanism = spec.mechanism();
  if (settings.causal && !mechanism.masks.causal) return "it has no causal form";
  if (settings.queries > 0 && !mechanism.cross) return "it cannot attend across two sequences";
  if (settings.queries > 0 && mechanism.causal_only) return "it has a causal form only";
  return "";
}

}  // namespace

// Without a wish all, with full attention in front; a wrapper stands before the last of the
// mechanisms that its sheet names.
std::vector<Candidate> candidates_of(const Field& field, const Say& say) {
  std::vector<Candidate> list;
  for (const std::string& text : field.attention) {
    list.push_back({AttentionSpec(text), field.reference});
    const std::string why = unfit(list.back().spec, field.settings);
    require(why.empty(), "{}: not {}, {}; name another mechanism",
            field.settings.causal ? "--causal" : "--queries", text, why);
  }
  if (!list.empty()) return list;
  require(!field.reference, "--reference: name mechanisms by --attention");
  list.push_back({AttentionSpec(baseline), false});
  if (!field.settings.layer && field.settings.blocks == 0)
    list.push_back({AttentionSpec(baseline), true});
  for (const Mechanism* mechanism : mechanisms()) {
    if (mechanism->name == baseline) continue;
    std::string text = mechanism->name;
    if (mechanism->wrapper) {
      text += "/" + AttentionSpec(mechanism->inner_tried.back()).mechanism().name;
    }
    const AttentionSpec spec(text);
    if (const std::string why = unfit(spec, field.settings); !why.empty()) {
      say(fmt::format("{}: left out, {}", text, why));
    } else if (field.settings.blocks == 0 || !spec.mechanism().causal_only) {
      list.push_back({spec, false});
    }
  }
  return list;
}

std::vector<Entrant> entrants_of(const std::vector<Candidate>& candidates, const Field& field,
                                 Device device, const Ceilings& best,
                                 const std::function<bool()>& stop, const Say& say) {
  std::vector<Entrant> entrants;
  for (const Candidate& c : candidates) {
    entrants.push_back(
        {c.name(), lengths_of(field, c, device),
         [=, s = field.settings](std::int64_t n) { return expected(c, s, n, device); },
         [=](std::int64_t n) { return row_of(c, n, field, device, best, stop); }});
  }
  const bool alone = !field.settings.layer && field.settings.blocks == 0;
  if (field.attention.empty() && field.peers && alone) {
    add_peers(entrants, field, device, best, say);
  }
  return entrants;
}

}  // namespace weft::bench
