#include "apps/charlm/settings.h"

#include <algorithm>
#include <iterator>

#include "apps/language/long_context.h"

namespace weft::charlm {

std::vector<std::string> presets() {
  std::vector<std::string> names = spellings_presets("text8");
  std::ranges::copy(long_presets("text8"), std::back_inserter(names));
  return names;
}

// The models of the paper's table 1, with the settings of its code, and the long-context presets.
Settings preset(const std::string& name) {
  check_word("preset", name, presets());
  Settings s;
  s.preset = name;
  s.vocabulary = "text8";
  s.split = "60/30/10";
  if (is_long_preset(name)) {
    s.model = long_network(name, 2048);
    train_long(s, s.model, 2048);
    s.test_batches = 60;
    return s;
  }
  s.model = spellings_network(name);
  train_as_spellings(s);
  s.epoch_steps = 1464;
  s.validation_batches = 732;
  s.test_batches = 244;
  return s;
}

void check(const Settings& settings) {
  check_numbers(settings);
  check_word("vocabulary", settings.vocabulary, {"auto", "text8", "characters", "bytes"});
  check_network(settings.model);
  check_training(settings);
  if (settings.split != "auto") parse_split(settings.split);
}

}  // namespace weft::charlm
