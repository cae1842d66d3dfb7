#include "ops/attention/spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include "ops/attention/mechanism.h"
#include "runtime/error.h"
#include "runtime/listed.h"
#include "runtime/names.h"

namespace weft {
namespace {

std::size_t option_index(const Mechanism& mechanism, const std::string& name) {
  for (std::size_t i = 0; i < mechanism.options.size(); ++i) {
    if (mechanism.options[i].name == name) return i;
  }
  std::vector<std::string> names;
  for (const OptionSheet& option : mechanism.options) names.push_back(option.name);
  require(!names.empty(), "attention {}: there is no option '{}'; it has none", mechanism.name,
          name);
  fail("attention {}: there is no option '{}'; there are {}", mechanism.name, name,
       known_names(name, names));
}

bool parse_number(const std::string& text, double& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc{} && end == text.data() + text.size() && std::isfinite(value);
}

void check_value(const Mechanism& mechanism, const OptionSheet& option, const std::string& value) {
  if (!option.choices.empty()) {
    std::vector<std::string> words = option.choices;
    words.insert(words.end(), option.handed.begin(), option.handed.end());
    require(std::count(words.begin(), words.end(), value) == 1,
            "attention {}: {} is one of {}, got '{}'", mechanism.name, option.name,
            listed(words), value);
    return;
  }
  double number = 0;
  require(parse_number(value, number) && number >= option.least && number <= option.most,
          "attention {}: {} is a number in [{}, {}], got '{}'", mechanism.name, option.name,
          option.least, option.most, value);
  require(!option.whole || number == std::floor(number),
          "attention {}: {} must be a whole number, got {}", mechanism.name, option.name, value);
}

}  // namespace

AttentionSpec::AttentionSpec(const std::string& text) {
  const std::string own = text.substr(0, text.find('/'));
  if (own.size() < text.size()) {
    inner_ = std::make_shared<AttentionSpec>(text.substr(own.size() + 1));
  }
  const std::size_t colon = own.find(':');
  const Mechanism& named = weft::mechanism(own.substr(0, colon));
  mechanism_ = std::shared_ptr<const Mechanism>(&named, [](const Mechanism*) {});  // the registry's
  require(!mechanism_->wrapper || inner_, "attention '{}': {} wraps another mechanism: {}/full",
          text, mechanism_->name, own);
  require(mechanism_->wrapper || !inner_,
          "attention '{}': {} is not a wrapper, '/' cannot follow it", text, mechanism_->name);
  if (inner_ && named.around != nullptr) {
    mechanism_ = std::make_shared<const Mechanism>(named.around(named, *inner_));
  }
  for (const OptionSheet& option : mechanism_->options) values_.push_back(option.initial);
  if (colon == std::string::npos) return;
  std::vector<bool> given(values_.size(), false);
  for (std::size_t begin = colon + 1; begin <= own.size();) {
    const std::size_t end = std::min(own.find(',', begin), own.size());
    const std::string setting = own.substr(begin, end - begin);
    const std::size_t equals = setting.find('=');
    require(equals != std::string::npos && equals > 0,
            "attention '{}': wanted name:option=value,option=value, got '{}'", text, setting);
    const std::size_t index = option_index(*mechanism_, setting.substr(0, equals));
    require(!given[index], "attention '{}': {} is given twice", text,
            mechanism_->options[index].name);
    given[index] = true;
    values_[index] = setting.substr(equals + 1);
    check_value(*mechanism_, mechanism_->options[index], values_[index]);
    begin = end + 1;
  }
  for (const OptionSheet& option : mechanism_->options) {
    if (option.with.empty() || !sets(option.name)) continue;
    const std::size_t equals = option.with.find('=');
    require(word(option.with.substr(0, equals)) == option.with.substr(equals + 1),
            "attention {}: {} counts with {} alone", mechanism_->name, option.name, option.with);
  }
}

const std::string& AttentionSpec::word(const std::string& option) const {
  return values_[option_index(*mechanism_, option)];
}

double AttentionSpec::number(const std::string& option) const {
  double value = 0;
  require(parse_number(word(option), value), "attention {}: {} is '{}', not a number",
          mechanism_->name, option, word(option));
  return value;
}

i64 AttentionSpec::integer(const std::string& option) const {
  const double value = number(option);
  require(value == std::floor(value), "attention {}: {} must be a whole number, got {}",
          mechanism_->name, option, value);
  return static_cast<i64>(value);
}

bool AttentionSpec::has(const std::string& option) const {
  return std::ranges::count(mechanism_->options, option, &OptionSheet::name) > 0;
}

bool AttentionSpec::sets(const std::string& option) const {
  return word(option) != mechanism_->options[option_index(*mechanism_, option)].initial;
}

AttentionSpec AttentionSpec::with(const std::string& option, i64 value) const {
  AttentionSpec changed = *this;
  const std::size_t index = option_index(*mechanism_, option);
  changed.values_[index] = std::to_string(value);
  check_value(*mechanism_, mechanism_->options[index], changed.values_[index]);
  return changed;
}

std::string AttentionSpec::text() const {
  std::string text = mechanism_->name;
  char separator = ':';
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (values_[i] == mechanism_->options[i].initial) continue;
    text += fmt::format("{}{}={}", std::exchange(separator, ','), mechanism_->options[i].name,
                        values_[i]);
  }
  return inner_ ? text + "/" + inner_->text() : text;
}

std::vector<std::string> split_specifications(const std::string& list) {
  std::vector<std::string> specifications;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string entry = list.substr(begin, end - begin);
    require(!entry.empty(), "attention '{}': wanted specifications with single commas between them",
            list);
    if (entry.find('=') < entry.find(':')) {
      require(!specifications.empty(), "attention '{}': the option {} comes before any mechanism",
              list, entry);
      specifications.back() += "," + entry;
    } else {
      specifications.push_back(entry);
    }
    begin = end + 1;
  }
  return specifications;
}

}  // namespace weft
