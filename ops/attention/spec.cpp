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

// The value, checked. A number is in one form: the default's own text, or its shortest one.
std::string checked_value(const Mechanism& mechanism, const OptionSheet& option,
                          const std::string& value) {
  if (!option.choices.empty()) {
    std::vector<std::string> words = option.choices;
    words.insert(words.end(), option.handed.begin(), option.handed.end());
    require(std::count(words.begin(), words.end(), value) == 1,
            "attention {}: {} is one of {}, got '{}'", mechanism.name, option.name,
            listed(words), value);
    return value;
  }
  double number = 0, initial = 0;
  require(parse_number(value, number) && number >= option.least && number <= option.most,
          "attention {}: {} is a number in [{}, {}], got '{}'", mechanism.name, option.name,
          option.least, option.most, value);
  require(!option.whole || number == std::floor(number),
          "attention {}: {} must be a whole number, got {}", mechanism.name, option.name, value);
  const bool same = parse_number(option.initial, initial) && number == initial;
  return same ? option.initial : fmt::format("{}", number);
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
  written_.resize(values_.size(), false);
  if (colon == std::string::npos) return;
  for (const std::string& setting : parts_between(own.substr(colon + 1), ',')) {
    const std::size_t equals = setting.find('=');
    require(equals != std::string::npos && equals > 0,
            "attention '{}': wanted name:option=value,option=value, got '{}'", text, setting);
    const std::size_t index = option_index(*mechanism_, setting.substr(0, equals));
    require(!written_[index], "attention '{}': {} is given twice", text,
            mechanism_->options[index].name);
    set(index, setting.substr(equals + 1));
  }
  for (const OptionSheet& option : mechanism_->options) {
    if (is_default(option.name)) continue;
    const std::string wanted = unmet(option.with);
    require(wanted.empty(), "attention {}: {}={} has an effect only with {}", mechanism_->name,
            option.name, word(option.name), wanted);
  }
}

void AttentionSpec::set(std::size_t option, const std::string& value) {
  values_[option] = checked_value(*mechanism_, mechanism_->options[option], value);
  written_[option] = true;
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
  return written_[option_index(*mechanism_, option)];
}

bool AttentionSpec::is_default(const std::string& option) const {
  return word(option) == mechanism_->options[option_index(*mechanism_, option)].initial;
}

std::string AttentionSpec::unmet(const std::string& conditions) const {
  if (conditions.empty()) return {};
  for (const std::string& condition : parts_between(conditions, ',')) {
    const std::size_t equals = condition.find('=');
    require(equals != std::string::npos && equals > 0,
            "attention {}: wanted conditions option=value, got '{}'", mechanism_->name, conditions);
    const bool other = condition[equals - 1] == '!';
    const std::vector<std::string> values = parts_between(condition.substr(equals + 1), '|');
    const std::string& value = word(condition.substr(0, other ? equals - 1 : equals));
    if ((std::ranges::count(values, value) > 0) == other) return condition;
  }
  return {};
}

AttentionSpec AttentionSpec::with(const std::string& option, i64 value) const {
  AttentionSpec changed = *this;
  changed.set(option_index(*mechanism_, option), std::to_string(value));
  return changed;
}

std::string AttentionSpec::text() const {
  std::string text = mechanism_->name;
  char separator = ':';
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (!written_[i]) continue;
    text += fmt::format("{}{}={}", std::exchange(separator, ','), mechanism_->options[i].name,
                        values_[i]);
  }
  return inner_ ? text + "/" + inner_->text() : text;
}

std::vector<std::string> split_specifications(const std::string& list) {
  std::vector<std::string> specifications;
  for (const std::string& entry : parts_between(list, ',')) {
    require(!entry.empty(), "attention '{}': wanted specifications with single commas between them",
            list);
    if (entry.find('=') < entry.find(':')) {
      require(!specifications.empty(), "attention '{}': the option {} comes before any mechanism",
              list, entry);
      std::string& own = specifications.back();
      const std::size_t inner = own.rfind('/') + 1;  // 0 without a wrapper
      own += (own.find(':', inner) == own.npos ? ":" : ",") + entry;
    } else {
      specifications.push_back(entry);
    }
  }
  return specifications;
}

}  // namespace weft
