#include "apps/common/long_context.h"

#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "ops/attention/mechanism.h"

namespace weft {
namespace {

constexpr const char* word = "-long";

// Of windows of N tokens and heads of 32. linear has as many features as a head is wide, agglomerative
// as many classes as heads.
std::string matched_options(const std::string& mechanism, i64 N) {
  static const std::map<std::string, std::string> options = {
      {"local", "context=256"},  // 129 keys
      {"performer", "features=64"},
      {"sparse", "pattern=strided,stride=128"},  // 128 keys, and one in 128 of those before
      {"topk", "topk=128"},
      {"synthesizer", "mode=dense,hidden=64"},
  };
  // 64 features; texts may be written up to twice the window.
  if (mechanism == "cosformer") return fmt::format("max_length={}", 2 * N);
  const auto found = options.find(mechanism);
  return found == options.end() ? "" : found->second;
}

}  // namespace

std::vector<std::string> long_presets(const std::string& dataset) {
  std::vector<std::string> names = {dataset + word};
  for (const Mechanism* m : mechanisms_so_far()) {
    const bool in_layers = m->rows.count == nullptr;
    if (m->wrapper || !in_layers || !m->masks.causal || !m->strictly_causal) continue;
    names.push_back(fmt::format("{}{}-{}", dataset, word, m->name));
  }
  return names;
}

bool is_long_preset(const std::string& name) {
  const std::string tail = name.substr(std::min(name.find('-'), name.size()));
  return tail == word || tail.starts_with(std::string(word) + "-");
}

UniversalTransformerConfig long_network(const std::string& preset, i64 length) {
  const std::size_t end = preset.find(word) + std::string(word).size();
  const std::string mechanism = end == preset.size() ? "full" : preset.substr(end + 1);
  const std::string options = matched_options(mechanism, length);
  UniversalTransformerConfig network;
  network.attention = options.empty() ? mechanism : mechanism + ":" + options;
  network.encoding = "conv";
  network.width = 128;
  network.heads = 4;
  network.depth = 4;
  network.length = length;
  // A convolution stands before each layer and adds nothing to what it reads. Adaptive computation
  // lets every layer's states reach the output; with the last ones alone, training stays for
  // hundreds of steps where only the frequency of the tokens is learnt.
  network.act = true;
  network.shared = false;
  network.wiring = "prenorm";
  network.attention_dropout = network.residual_dropout = network.output_dropout = 0;
  return network;
}

void train_long(TrainingSettings& s) {
  s.batch = 2;
  s.optimizer = "adam";
  s.lr = 0.003;
  s.schedule = "cosine";
  s.warmup = 100;
  s.clip = 1;
}

}  // namespace weft
