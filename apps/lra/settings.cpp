#include "apps/lra/settings.h"

#include <utility>

#include "ops/attention/spec.h"

namespace weft::lra {
namespace {

// The rows of bench/tables/listops. Sizes of mechanisms are those of the small models in the
// Nyströmformer paper: 256 slots or features, and two rounds for Reformer.
const std::vector<std::pair<const char*, const char*>>& mechanisms_of_rows() {
  static const std::vector<std::pair<const char*, const char*>> list = {
      {"full", "full"},
      {"linformer", "linformer:rank=256"},
      {"performer", "performer:features=256"},
      {"reformer", "lsh:rounds=2"},
      {"linear", "linear"},
      {"cosformer", "cosformer:max_length=2000"},
      {"local", "local:context=256"},
      {"csp", "csp:groups=1"}};
  return list;
}

}  // namespace

Settings::Settings() {
  batch = 32;
  optimizer = "adam";
  lr = 1e-4;
  schedule = "linear";
  warmup = 1000;
  clip = 0;
  steps = 5000;
}

const std::vector<std::string>& presets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, attention] : mechanisms_of_rows()) {
      all.push_back(fmt::format("listops-{}", name));
    }
    return all;
  }();
  return names;
}

Settings preset(const std::string& name) {
  check_word("preset", name, presets());
  Settings s;
  for (const auto& [row, attention] : mechanisms_of_rows()) {
    if (name.substr(name.find('-') + 1) == row) s.model.attention = attention;
  }
  s.preset = name;
  return s;
}

void check(const Settings& settings) {
  check_numbers(settings);
  check_training(settings);
  check_word("task", settings.task, {"listops"});
  AttentionSpec{settings.model.attention};
}

}  // namespace weft::lra
