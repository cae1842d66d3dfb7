#include "apps/language/long_context.h"

#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "ops/attention/mechanism.h"

namespace weft {
namespace {

constexpr const char *whole = "-long", *in_segments = "-memory-";
constexpr i64 shorter = 4;  // windows of presets with a memory are shorter by this factor

// Options for windows of N tokens and heads of width 32. linear has as many features as a head has
// width, agglomerative as many classes as heads.
std::string matched_options(const std::string& mechanism, i64 N) {
  static const std::map<std::string, std::string> options = {
      {"local", "context=256"},  // 129 keys
      {"mega", "chunk=128"},     // at most 128 keys
      {"performer", "features=64"},
      {"sparse", "pattern=strided,stride=128"},  // 128 keys, and every 128th of those before
      {"topk", "topk=128"},
      {"synthesizer", "mode=dense,hidden=64"},
  };
  // 64 features; generated texts may be up to twice as long as the window.
  if (mechanism == "cosformer") return fmt::format("max_length={}", 2 * N);
  const auto found = options.find(mechanism);
  return found == options.end() ? "" : found->second;
}

}  // namespace

std::vector<std::string> long_presets(const std::string& dataset) {
  std::vector<std::string> names = {dataset + whole};
  for (const Mechanism* m : mechanisms_so_far()) {
    const bool in_layers = m->rows.count == nullptr;
    if (m->wrapper || !in_layers || !m->masks.causal || !m->strictly_causal) continue;
    names.push_back(fmt::format("{}{}-{}", dataset, whole, m->name));
    if (m->earlier_keys) names.push_back(dataset + in_segments + m->name);
  }
  return names;
}

bool is_long_preset(const std::string& name) {
  const std::string tail = name.substr(std::min(name.find('-'), name.size()));
  return tail == whole || tail.starts_with(std::string(whole) + "-") ||
         tail.starts_with(in_segments);
}

UniversalTransformerConfig long_network(const std::string& preset, i64 length) {
  const std::size_t split = preset.find(in_segments);
  const bool remembers = split != std::string::npos;
  const std::size_t end = remembers ? split + std::string(in_segments).size() - 1
                                    : preset.find(whole) + std::string(whole).size();
  const std::string mechanism = end == preset.size() ? "full" : preset.substr(end + 1);
  const std::string options = matched_options(mechanism, length);
  UniversalTransformerConfig network;
  network.attention = options.empty() ? mechanism : mechanism + ":" + options;
  network.encoding = "conv";
  network.width = 128;
  network.heads = 4;
  network.depth = 4;
  network.length = remembers ? length / shorter : length;
  network.memory = remembers ? network.length : 0;
  // The convolution before each layer has no residual connection. With adaptive computation time
  // every layer's states contribute to the output; with the last layer's states alone, training
  // stays for hundreds of steps at the unigram entropy of the tokens.
  network.act = true;
  network.shared = false;
  network.wiring = "prenorm";
  network.attention_dropout = network.residual_dropout = network.output_dropout = 0;
  return network;
}

void train_long(TrainingSettings& s, const UniversalTransformerConfig& network, i64 length) {
  s.batch = 2 * length / network.length;
  s.optimizer = "adam";
  s.lr = 0.003;
  s.schedule = "cosine";
  s.warmup = 100;
  s.clip = 1;
}

}  // namespace weft
