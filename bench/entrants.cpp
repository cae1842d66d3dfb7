#include "bench/entrants.h"

#include <memory>

#include <fmt/core.h>

#include "apps/command_line/attention_json.h"
#include "bench/passes.h"
#include "bench/peer.h"
#include "bench/summary.h"
#include "runtime/allocator.h"

namespace weft::bench {
namespace {

// Whether the mechanism takes whole blocks alone, and n is not a multiple of the block.
bool is_cut(const Candidate& candidate, i64 n) {
  const std::string& block = candidate.spec.mechanism().multiple_of;
  return !block.empty() && n % candidate.spec.integer(block) != 0;
}

// Multiples of the block, if the mechanism needs that: 256, 512, … 65,536, and on to 1 Mi if time
// and memory are linear.
std::vector<i64> lengths_of(const Field& field, const Candidate& candidate, Device device) {
  std::vector<i64> lengths = field.lengths;
  if (lengths.empty()) {
    constexpr i64 shortest = 256, longest = 65536, most = 1 << 20;
    const bool linear = stays_linear(candidate, field.settings, device, longest, most);
    for (i64 n = shortest; n <= (linear ? most : longest); n *= 2) lengths.push_back(n);
  }
  std::erase_if(lengths, [&](i64 n) { return is_cut(candidate, n); });
  return lengths;
}

void add_times(Row& row, const char* name, const std::vector<double>& seconds) {
  const Quantiles times = quantiles(seconds);
  row[fmt::format("{}_ms", name)] = 1e3 * times.median;
  row[fmt::format("{}_p10_ms", name)] = 1e3 * times.p10;
  row[fmt::format("{}_p90_ms", name)] = 1e3 * times.p90;
}

// The fact sheet's counts, and the rates and shares that follow.
void add_rates(Row& row, const Expected& sheet, double seconds, const Ceilings& best) {
  row.update({{"operations", sheet.operations},
              {"exponentials", sheet.exponentials},
              {"moved_bytes", sheet.moved_bytes},
              {"expected_saved_bytes", sheet.saved_bytes},
              {"expected_peak_bytes", sheet.peak_bytes},
              {"gbytes_per_second", sheet.moved_bytes / seconds / 1e9},
              {"gemm_gflops", best.gemm / 1e9},
              {"exp_gexps", best.exp / 1e9},
              {"copy_gbytes_per_second", best.copy / 1e9},
              {"share_of_copy", sheet.moved_bytes / seconds / best.copy}});
  if (sheet.at_most) return;
  row.update({{"gflops", sheet.operations / seconds / 1e9},
              {"gexps", sheet.exponentials / seconds / 1e9},
              {"share_of_gemm", sheet.operations / seconds / best.gemm},
              {"share_of_exp", sheet.exponentials / seconds / best.exp}});
}

Row row_of(const Candidate& candidate, i64 length, const Field& field, Device device,
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
  if (!field.settings.layer && !field.settings.core && field.settings.blocks == 0) {
    add_rates(row, expected(candidate, field.settings, length, device), seconds, best);
  }
  return row;
}

std::vector<std::string> peer_command(const std::vector<Candidate>& candidates, const Field& field,
                                      const std::string& python, Device device) {
  const Settings& s = field.settings;
  std::vector<std::string> command{
      python,          WEFT_SOURCE_ROOT "/bench/peers/torch_attention.py",
      "--device",      device == Device{} ? "cpu" : fmt::format("cuda:{}", device.index),
      "--threads",     std::to_string(s.threads),
      "--batch",       std::to_string(s.batch),
      "--heads",       std::to_string(s.heads),
      "--key-width",   std::to_string(s.key_width),
      "--value-width", std::to_string(s.value_width),
      "--seconds",     fmt::format("{}", s.seconds),
      "--row-seconds", fmt::format("{}", field.row_seconds)};
  if (s.precision != "f32") command.insert(command.end(), {"--precision", s.precision});
  if (s.queries > 0) command.insert(command.end(), {"--queries", std::to_string(s.queries)});
  for (const Candidate& candidate : candidates) {
    Json json = to_json(candidate.spec);
    json["causal"] = masks_future(candidate.spec, s);
    command.insert(command.end(), {"--attention", json.text()});
  }
  return command;
}

// A form of a mechanism, as the peer's greeting describes it.
Entrant peer_entrant(const std::shared_ptr<Peer>& peer, const Row& hello, const Row& form,
                     const Candidate& candidate, const Field& field, Device device,
                     const Ceilings& best) {
  const std::string version = hello.at("version"), name = form.at("form");
  const bool all_pairs = form.at("all_pairs");
  const double bytes_of_pair = form.at("bytes_of_pair");
  const Candidate like = all_pairs ? Candidate{AttentionSpec(baseline)} : candidate;
  const auto sheet = [=](i64 n) {
    Expected sum = expected(like, field.settings, n, device);
    const i64 queries = field.settings.queries > 0 ? field.settings.queries : n;
    sum.peak_bytes += bytes_of_pair * double(n) * double(queries);
    return sum;
  };
  const std::string mechanism = candidate.spec.text();
  std::string title = "PyTorch " + version.substr(0, version.find_first_of("+a"));
  if (mechanism != baseline) title += " " + mechanism;
  return {title + " (" + name + ")", lengths_of(field, like, device), sheet, [=](i64 n) {
            Row row = peer->ask(fmt::format("{} {} {}", form.at("attention").get<int>(), name, n));
            row["peer_version"] = version;
            if (row.at("backward_ms").is_null()) return row;
            const double ms =
                row.at("forward_ms").get<double>() + row.at("backward_ms").get<double>();
            add_rates(row, sheet(n), ms / 1e3, best);
            for (const char* ours : {"expected_saved_bytes", "expected_peak_bytes"})
              row.erase(ours);
            return row;
          }};
}

// PyTorch's forms of each candidate; none, with the reason, if PyTorch is not installed.
std::vector<std::vector<Entrant>> peers_of(const std::vector<Candidate>& candidates,
                                           const Field& field, Device device, const Ceilings& best,
                                           const Say& say) {
  std::vector<std::vector<Entrant>> peers(candidates.size());
  std::vector<std::string> pythons{field.python};
  if (field.python.empty()) pythons = {"python3", "/usr/bin/python3"};
  std::string why;
  for (const std::string& python : pythons) {
    try {
      const auto peer = std::make_shared<Peer>(peer_command(candidates, field, python, device));
      const Row hello = peer->read();
      for (const Row& form : hello.at("forms")) {
        const std::size_t number = form.at("attention");
        peers.at(number).push_back(
            peer_entrant(peer, hello, form, candidates[number], field, device, best));
      }
      for (std::size_t i = 0; i < peers.size(); ++i) {
        if (!peers[i].empty()) continue;
        say(fmt::format("PyTorch: {} left out, it has no form here", candidates[i].spec.text()));
      }
      return peers;
    } catch (const std::exception& error) {
      why += (why.empty() ? "" : "; ") + python + ": " + error.what();
    }
  }
  say("PyTorch: left out (" + why + ")");
  return peers;
}

// The option that excludes a mechanism, and why; empty: none does.
struct Unfit {
  const char* option = "";
  std::string why = {};
};

Unfit unfit(const AttentionSpec& spec, const Settings& settings) {
  const Mechanism& m = spec.mechanism();
  const bool in_layers = settings.layer || settings.blocks > 0, few = settings.queries > 0;
  if (in_layers && m.rows.count != nullptr)
    return {settings.layer ? "--layer" : "--blocks", "its rows are not positions"};
  if (settings.causal && !has_causal_form(spec)) return {"--causal", "it has no causal form"};
  if (few && !m.cross) return {"--queries", "it cannot attend across two sequences"};
  if (few && m.causal_only) return {"--queries", "it has a causal form only"};
  if (settings.core && m.name == "mega" && spec.word("attention") == "csp")
    return {"--core", "it has no q and k with attention=csp"};
  return {};
}

}  // namespace

// All mechanisms unless some are named, full attention first; a wrapper is put around the last of
// the mechanisms that its sheet lists.
std::vector<Candidate> candidates_of(const Field& field, const Say& say) {
  std::vector<Candidate> list;
  for (const std::string& text : field.attention) {
    list.push_back({AttentionSpec(text), field.reference});
    const Unfit found = unfit(list.back().spec, field.settings);
    require(found.why.empty(), "{}: not {}, {}; name another mechanism", found.option, text,
            found.why);
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
    if (const Unfit found = unfit(spec, field.settings); !found.why.empty()) {
      say(fmt::format("{}: left out, {}", text, found.why));
    } else if (field.settings.blocks == 0 || !spec.mechanism().causal_only) {
      list.push_back({spec, false});
    }
  }
  return list;
}

std::vector<Entrant> entrants_of(const std::vector<Candidate>& candidates, const Field& field,
                                 Device device, const Ceilings& best,
                                 const std::function<bool()>& stop, const Say& say) {
  const bool alone = !field.settings.layer && field.settings.blocks == 0;
  const bool by_default = field.attention.empty() && field.peers && alone;
  std::vector<Candidate> beside;  // PyTorch
  for (const Candidate& c : candidates) {
    const bool wanted = field.every_peer || (by_default && c.spec.text() == baseline);
    if (wanted && !c.reference) beside.push_back(c);
  }
  std::vector<std::vector<Entrant>> peers;
  if (!beside.empty()) peers = peers_of(beside, field, device, best, say);
  std::vector<Entrant> entrants;
  for (std::size_t i = 0, next = 0; i < candidates.size(); ++i) {
    const Candidate& c = candidates[i];
    for (const i64 n : field.lengths) {
      if (!is_cut(c, n)) continue;
      const std::string& block = c.spec.mechanism().multiple_of;
      say(fmt::format("{}: length {} left out, wanted a multiple of {} = {}", c.name(), n, block,
                      c.spec.integer(block)));
    }
    entrants.push_back({c.name(), lengths_of(field, c, device),
                        [=, s = field.settings](i64 n) { return expected(c, s, n, device); },
                        [=](i64 n) { return row_of(c, n, field, device, best, stop); }});
    if (next == beside.size() || beside[next].name() != c.name()) continue;
    for (Entrant& peer : peers[next]) entrants.push_back(std::move(peer));
    ++next;
  }
  return entrants;
}

}  // namespace weft::bench
