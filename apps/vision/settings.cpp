#include "apps/vision/settings.h"

#include "apps/data/cifar.h"
#include "ops/attention/spec.h"

namespace weft::vision {
namespace {

struct Operator {
  const char *name, *attention;
  i64 value_width = 0;
};

// The rows of the paper's Tables 1 and 3. The default shift is the linear one of Table 1.
const std::vector<Operator>& operators() {
  static const std::vector<Operator> list = {
      {"full", "full"},
      {"shift", "csp-shift"},
      {"shift-heads", "csp-shift:shift=head"},
      {"sort", "csp-sort"},
      {"csp", "csp"},
      {"csp-wide", "csp", 1024}};
  return list;
}

// S. Yuan, H. Xu, arXiv 2410.10914, section 4.1 and the released code.
Settings paper_model(const std::string& dataset, const Operator& row) {
  Settings s;
  s.dataset = dataset;
  s.data = dataset == "cifar-10" ? "cifar-10-batches-bin" : "cifar-100-binary";
  s.model = VisionTransformerConfig{};
  s.model.patch = dataset == "cifar-10" ? 4 : 2;
  s.model.classes = static_cast<i64>(class_names(dataset).size());
  s.model.attention = row.attention;
  s.model.value_width = row.value_width;
  s.model.attention_dropout = s.model.attention == "full" ? 0.1 : 0;
  s.batch = 64;
  s.optimizer = "adam";
  s.lr = 1e-4;
  s.warmup = 0;
  s.clip = 0;
  s.epochs = 100;
  s.rate_by_epoch = true;
  s.validation = 5000;
  s.test_epochs = true;
  s.seed = 0;
  return s;
}

}  // namespace

Settings::Settings() {
  model.width = 64;
  model.layers = 2;
  model.heads = 4;
  model.hidden = 128;
  model.attention = "csp";
  model.attention_dropout = model.dropout = 0;
  batch = 64;
  lr = 4e-3;
  epochs = 5;
}

const std::vector<std::string>& presets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char* dataset : {"cifar10", "cifar100"}) {
      for (const Operator& row : operators()) {
        all.push_back(fmt::format("{}-{}", dataset, row.name));
      }
    }
    return all;
  }();
  return names;
}

Settings preset(const std::string& name) {
  check_word("preset", name, presets());
  const std::size_t cut = name.find('-');
  Settings s;
  for (const Operator& row : operators()) {
    if (name.substr(cut + 1) != row.name) continue;
    s = paper_model(name.substr(0, cut) == "cifar10" ? "cifar-10" : "cifar-100", row);
  }
  s.preset = name;
  return s;
}

void check(const Settings& settings) {
  check_numbers(settings);
  check_training(settings);
  std::vector<std::string> sets = picture_sets();
  sets.insert(sets.begin(), "auto");
  check_word("dataset", settings.dataset, sets);
  AttentionSpec{settings.model.attention};
}

}  // namespace weft::vision
