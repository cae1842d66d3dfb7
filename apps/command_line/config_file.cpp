#include "apps/command_line/config_file.h"

#include <limits>
#include <map>
#include <optional>
#include <sstream>

#include <toml++/toml.h>

#include "apps/command_line/hint.h"
#include "apps/data/unicode.h"
#include "nn/file.h"
#include "runtime/error.h"

namespace weft {
namespace {

// The parser recurses on dotted keys (a.b.c = 1), so a file could make it recurse as many levels
// as half its bytes; this limit keeps the stack small.
constexpr std::uint64_t most_bytes = 1 << 15;
constexpr std::size_t most_shown = 100;  // longest parser message to quote

std::string text_of(const std::string& path) {
  InputFile file(path);
  require(file.size() <= most_bytes, "{}: wanted at most {} bytes of options, got {}", path,
          most_bytes, file.size());
  return read_file(file);
}

const char* kind_of(const toml::node& value) {
  switch (value.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a floating-point number";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

// How a kind of option converts a TOML value to the text that CLI11 parses; a list becomes one
// word. `text` returns nothing for a value of the wrong type.
struct Kind {
  std::string wanted;  // "an integer"
  std::optional<std::string> (*text)(const toml::node& value);
};

std::optional<std::string> integer_text(const toml::node& value) {
  if (!value.is_integer()) return {};
  return std::to_string(value.as_integer()->get());
}
std::optional<std::string> number_text(const toml::node& value) {
  if (value.is_floating_point()) return fmt::format("{}", value.as_floating_point()->get());
  return integer_text(value);
}
std::optional<std::string> string_text(const toml::node& value) {
  if (!value.is_string()) return {};
  return value.as_string()->get();
}
std::optional<std::string> flag_text(const toml::node& value) {
  if (!value.is_boolean()) return {};
  return value.as_boolean()->get() ? "true" : "false";
}
std::optional<std::string> list_text(const toml::node& value) {
  if (!value.is_array() || value.as_array()->empty()) return {};
  std::string text;
  for (const toml::node& element : *value.as_array()) {
    const auto number = integer_text(element);
    if (!number) return {};
    text += (text.empty() ? "" : ",") + *number;
  }
  return text;
}

// What a value is that is no list of integers.
std::string got_for_list(const toml::node& value) {
  if (!value.is_array()) return kind_of(value);
  for (const toml::node& element : *value.as_array()) {
    if (!element.is_integer()) return fmt::format("one that holds {}", kind_of(element));
  }
  return "an empty one";
}

Kind kind_for(OptionKind option) {
  switch (option) {
    case OptionKind::flag:
      return {"true or false", flag_text};
    case OptionKind::integers:
      return {"an array of integers", list_text};
    case OptionKind::text:
      return {"a string", string_text};
    case OptionKind::number:
      return {"a number", number_text};
    case OptionKind::integer:
      return {"an integer", integer_text};
  }
  fail("unknown kind of option {}", static_cast<int>(option));
}

OptionKind kind_named(const std::string& key, const Options& command) {
  std::vector<std::string> known;
  for (const OptionFacts& option : command.all()) {
    if (option.name == "--" + key) {
      require(option.group != once_group, "--{} is for the command line, not for a file", key);
      return option.kind;
    }
    if (option.group != once_group) known.push_back(option.name.substr(2));
  }
  const std::string shown = key.size() > most_shown ? "key" : Json(key).text();
  fail("there is no option {}{} {} --help lists them all", shown,
       hint(key.substr(0, most_shown), known, ""), command.name());
}

std::vector<std::string> words_of(const std::string& key, const toml::node& value,
                                  const Options& command) {
  require(!value.is_table(), "tables are not allowed; a key is the name of an option");
  const OptionKind option = kind_named(key, command);
  const Kind kind = kind_for(option);
  const auto text = kind.text(value);
  require(text.has_value(), "{}: wanted {}, got {}", key, kind.wanted,
          option == OptionKind::integers ? got_for_list(value) : kind_of(value));
  if (option == OptionKind::flag) return {"--" + key + "=" + *text};
  return {"--" + key, *text};
}

std::string toml_of(const std::string& key, const Json& value) {
  if (std::string text; value.take(text)) {
    check_utf8(text, "--" + key);
    const toml::value<std::string> node(text);
    std::ostringstream stream;
    stream << toml::toml_formatter(node, toml::format_flags::allow_unicode_strings);
    return stream.str();
  }
  // Shortest digits that round-trip.
  if (value.is<double>()) return fmt::format("{}", std::get<double>(value.value()));
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<i64>::max());
  for (const Json& one : value.is<Json::Array>() ? value.items() : Json::Array{value}) {
    std::uint64_t integer = 0;
    require(!one.take(integer) || integer <= largest,
            "--{}: integers of TOML are at most {}, got {}", key, largest, integer);
  }
  return value.text();
}

std::string config_text(const std::vector<ConfigValue>& values) {
  std::string text = fmt::format("# by weft {}\n", WEFT_VERSION);
  for (const auto& [key, value, help] : values) {
    text += fmt::format("{:<40}  # {}\n", key + " = " + toml_of(key, value), help);
  }
  return text;
}

}  // namespace

std::vector<ConfigEntry> read_config(const std::string& path, const Options& command) {
  toml::table table;
  try {
    table = toml::parse(text_of(path));
  } catch (const toml::parse_error& error) {
    const std::string why(error.description());
    fail("{}:{}: is not TOML{}", path, error.source().begin.line,
         why.size() > most_shown ? "" : ": " + why);
  }
  std::map<unsigned, ConfigEntry> entries;
  for (const auto& [key, value] : table) {
    const unsigned line = key.source().begin.line;
    const std::string place = fmt::format("{}:{}", path, line);
    try {
      entries[line] = {words_of(std::string(key.str()), value, command), place};
    } catch (const Error& error) {
      fail("{}: {}", place, error.what());
    }
  }
  std::vector<ConfigEntry> sorted;
  for (auto& [line, entry] : entries) sorted.push_back(std::move(entry));
  return sorted;
}

void print_config(const std::vector<ConfigValue>& values, bool json) {
  if (!json) return fmt::print("{}", config_text(values));
  Json all;
  for (const ConfigValue& value : values) all[value.key] = value.value;
  print_json(all);
}

}  // namespace weft
