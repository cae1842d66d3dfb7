#include "apps/wordlm/settings.h"

#include <algorithm>
#include <iterator>

#include "apps/data/word_corpus.h"
#include "apps/language/long_context.h"

namespace weft::wordlm {
namespace {

constexpr i64 paper_vocabulary = 9914;  // number of pieces for WikiText-2

}  // namespace

Settings::Settings() {
  model.vocabulary = paper_vocabulary;
  batch = 16;
}

std::vector<std::string> presets() {
  std::vector<std::string> names = spellings_presets("wikitext2");
  std::ranges::copy(long_presets("wikitext2"), std::back_inserter(names));
  return names;
}

// The models of the paper's table 2, with the settings of its code, and the long-context presets.
Settings preset(const std::string& name) {
  check_word("preset", name, presets());
  Settings s;
  s.preset = name;
  s.pieces = "paper";
  if (is_long_preset(name)) {
    s.model = long_network(name, 1024);
    s.model.vocabulary = paper_vocabulary;
    train_long(s, s.model, 1024);
    return s;
  }
  s.model = spellings_network(name);
  s.model.width = 128;
  s.model.vocabulary = paper_vocabulary;
  s.batch = 32;
  train_as_spellings(s);
  return s;
}

void check(const Settings& settings) {
  check_numbers(settings);
  check_network(settings.model);
  check_training(settings);
  check_pieces(settings.pieces);
}

}  // namespace weft::wordlm
