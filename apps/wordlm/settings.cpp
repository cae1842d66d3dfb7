#include "apps/wordlm/settings.h"

namespace weft::wordlm {
namespace {

constexpr std::int64_t paper_vocabulary = 9914;  // pieces of WikiText-2

}  // namespace

Settings::Settings() {
  model.vocabulary = paper_vocabulary;
  model.attention = "agglomerative";
  model.encoding = "conv";
  model.depth = 2;
  model.act = false;
  model.attention_dropout = model.residual_dropout = model.output_dropout = 0;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> list = {
      {"wikitext2-full-position", "softmax attention, trained positions"},
      {"wikitext2-full-conv", "softmax attention, causal convolution"},
      {"wikitext2-agglomerative-position", "agglomerative attention, trained positions"},
      {"wikitext2-agglomerative-conv", "agglomerative attention, causal convolution"}};
  return list;
}

// The models of M. Spellings, "Agglomerative attention", arXiv 1907.06607, table 2, with the
// settings of the paper's code.
Settings preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& known : presets()) names.push_back(known.name);
  check_word("preset", name, names);
  const std::size_t first = name.find('-') + 1, last = name.rfind('-');
  Settings s;
  s.preset = name;
  s.model = spellings_network(name.substr(first, last - first), name.substr(last + 1));
  s.model.width = 128;
  s.model.vocabulary = paper_vocabulary;
  train_as_spellings(s);
  return s;
}

void check(const Settings& settings) {
  check_numbers(settings);
  check_network(settings.model);
  check_training(settings);
  require(!settings.pieces.empty(), "--pieces: wanted paper or a SentencePiece model, got ''");
}

}  // namespace weft::wordlm
