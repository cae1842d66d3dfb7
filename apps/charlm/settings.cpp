#include "apps/charlm/settings.h"

namespace weft::charlm {
namespace {

// The models of M. Spellings, "Agglomerative attention", arXiv 1907.06607, table 1, with the
// settings of the paper's code.
Settings paper_model(const std::string& attention, const std::string& encoding) {
  Settings s;
  s.vocabulary = "text8";
  s.model = spellings_network(attention, encoding);
  train_as_spellings(s);
  s.epoch_steps = 1464;
  s.validation_batches = 732;
  s.test_batches = 244;
  return s;
}

}  // namespace

Settings::Settings() {
  model.attention = "agglomerative";
  model.encoding = "conv";
  model.depth = 2;
  model.act = false;
  model.attention_dropout = model.residual_dropout = model.output_dropout = 0;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> list = {
      {"text8-full-position", "softmax attention, trained positions"},
      {"text8-full-conv", "softmax attention, causal convolution"},
      {"text8-agglomerative-position", "agglomerative attention, trained positions"},
      {"text8-agglomerative-conv", "agglomerative attention, causal convolution"}};
  return list;
}

Settings preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& known : presets()) names.push_back(known.name);
  check_word("preset", name, names);
  const std::size_t first = name.find('-') + 1, last = name.rfind('-');
  Settings s = paper_model(name.substr(first, last - first),
                           name.substr(last + 1) == "conv" ? "conv" : "position");
  s.preset = name;
  return s;
}

void check(const Settings& settings) {
  check_numbers(settings);
  check_word("vocabulary", settings.vocabulary, {"auto", "text8", "bytes"});
  check_network(settings.model);
  check_training(settings);
  parse_split(settings.split);
}

}  // namespace weft::charlm
