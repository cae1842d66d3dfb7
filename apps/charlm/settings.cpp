#include "apps/charlm/settings.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "nn/optimizer.h"
#include "nn/schedule.h"
#include "ops/attention/mechanism.h"

namespace weft {
namespace {

void check_limits(const std::string& name, double value, const Limits& limits) {
  const bool inside = limits.open ? value > limits.least && value < limits.most
                                  : value >= limits.least && value <= limits.most;
  require(inside, "--{}: wanted a number {} {:g} and {} {:g}, got {:g}", name,
          limits.open ? "above" : "of at least", limits.least, limits.open ? "below" : "at most",
          limits.most, value);
}

void check_word(const std::string& name, const std::string& value,
                const std::vector<std::string>& known) {
  require(std::count(known.begin(), known.end(), value) == 1,
          "--{}: there is no '{}'; there are {}", name, value, known_names(value, known));
}

// The library would convert between kinds of numbers, cutting off what does not fit.
template <class T>
bool take_value(const nlohmann::json& from, T& to) {
  const bool fits = std::is_same_v<T, bool>              ? from.is_boolean()
                    : std::is_same_v<T, std::string>     ? from.is_string()
                    : std::is_same_v<T, double>          ? from.is_number()
                    : std::is_same_v<T, std::uint64_t>   ? from.is_number_unsigned()
                                                         : from.is_number_integer();
  if (fits) from.get_to(to);
  return fits;
}

// The models of M. Spellings, "Agglomerative attention", arXiv 1907.06607, table 1, with the
// settings of the paper's code.
Settings paper_model(const std::string& attention, const std::string& encoding) {
  Settings s;
  s.vocabulary = "text8";
  s.model = UniversalTransformerConfig{};
  s.model.attention = attention;
  s.model.encoding = encoding;
  s.optimizer = "adadelta:rho=0.95,epsilon=1e-7";
  s.lr = 1;
  s.schedule = "constant";
  s.warmup = 0;
  s.clip = 0;
  s.epochs = 256;
  s.epoch_steps = 1464;
  s.patience = 10;
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
  each_setting(settings, [](const std::string& name, const auto& value, const Limits& limits,
                            const char*) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
      if (name != "seed") check_limits(name, static_cast<double>(value), limits);
    }
  });
  check_word("vocabulary", settings.vocabulary, {"auto", "text8", "bytes"});
  check_word("encoding", settings.model.encoding, {"position", "conv"});
  check_word("wiring", settings.model.wiring, {"universal", "vanilla"});
  check_word("schedule", settings.schedule, {"constant", "cosine", "linear"});
  parse_split(settings.split);
  AttentionSpec{settings.model.attention};
  make_optimizer(settings.optimizer, {});
}

void check_causal(const std::string& attention, bool allow_leaky) {
  const AttentionSpec spec(attention);
  const Mechanism& mechanism = spec.mechanism();
  require(mechanism.masks.causal, "--attention {}: has no causal form, which a language model needs",
          spec.text());
  require(mechanism.strictly_causal || allow_leaky,
          "--attention {}: is not strictly causal, what a position sees depends on the future, and "
          "its bits per character would be too good to be true; --allow-leaky takes it all the same",
          spec.text());
}

nlohmann::ordered_json to_json(const Settings& settings) {
  nlohmann::ordered_json json;
  json["preset"] = settings.preset;
  each_setting(settings, [&](const char* name, const auto& value, const Limits&, const char*) {
    json[name] = value;
  });
  return json;
}

Settings settings_from_json(const std::string& text, const std::string& source) {
  using nlohmann::json;
  const auto flat = [&](int depth, json::parse_event_t, json&) {
    require(depth <= 1, "{}: its configuration is nested", source);
    return true;
  };
  json values;
  try {
    values = json::parse(text, flat);
  } catch (const json::exception&) {
    fail("{}: its configuration is not JSON", source);
  }
  Settings settings;
  const auto take = [&](const std::string& name, auto& value) {
    require(values.is_object() && values.contains(name), "{}: its configuration has no '{}'",
            source, name);
    require(take_value(values.at(name), value),
            "{}: '{}' in its configuration has the wrong type", source, name);
  };
  take("preset", settings.preset);
  each_setting(settings, [&](const std::string& name, auto& value, const Limits&, const char*) {
    take(name, value);
  });
  try {
    check(settings);
  } catch (const Error& error) {
    fail("{}: its configuration: {}", source, error.what());
  }
  return settings;
}

}  // namespace weft
