#include "apps/command_line/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <sstream>

#include <CLI/CLI.hpp>

#include "apps/command_line/hint.h"
#include "apps/command_line/plugin.h"
#include "apps/command_line/wrapped.h"
#include "runtime/error.h"

namespace weft {
namespace {

// A check for Option::check().
std::string any_number(const std::string& text) {
  return CLI::Number(text).empty() ? "" : "wanted a number, got " + text;
}

// A check of numbers, shown by `kind` in the help. `fits` is false for NaN.
CLI::Validator numbers(const std::string& kind, const std::string& wanted,
                       const std::function<bool(double)>& fits) {
  const auto wrong = [=](const std::string& text) {
    const std::string none = any_number(text);
    if (!none.empty()) return none;
    return fits(std::strtod(text.c_str(), nullptr)) ? "" : "wanted " + wanted + ", got " + text;
  };
  return CLI::Validator(wrong, kind);
}

// The parser's own help, wrapped. The description of an option continues in its column.
class Help : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    constexpr std::size_t widest = 80;
    const std::size_t column = get_column_width();
    std::istringstream text(CLI::Formatter::make_help(app, std::move(name), mode));
    std::string help;
    for (std::string line; std::getline(text, line);) {
      const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
      const bool described = indent > 0 && line.size() > column && line[column - 1] == ' ';
      std::string before = line.substr(0, described ? column : indent);
      for (const std::string& part : wrapped(line.substr(before.size()), widest - before.size())) {
        help += before + part + "\n";
        before.assign(before.size(), ' ');
      }
    }
    return help;
  }
};

// "-o,--out" for "--out".
std::string with_short_name(const std::string& names) {
  const std::string name = names.substr(0, names.find(','));
  for (const ShortOption& option : short_options) {
    if (name == option.name) return fmt::format("-{},{}", option.letter, names);
  }
  return names;
}

}  // namespace

std::vector<std::string> with_long_names(const std::vector<std::string>& words) {
  std::vector<std::string> all;
  for (const std::string& word : words) {
    const bool is_short = word.size() > 1 && word[0] == '-' && word[1] != '-';
    std::vector<std::string> expanded;
    for (std::size_t i = 1; is_short && i < word.size(); ++i) {
      const auto* const found = std::ranges::find(short_options, word[i], &ShortOption::letter);
      if (found == std::end(short_options)) {
        expanded.clear();
        break;
      }
      std::string rest = found->is_flag ? "" : word.substr(i + 1);
      if (rest.starts_with('=')) rest.erase(0, 1);
      expanded.push_back(found->name + (rest.empty() ? "" : "=" + rest));
      if (!found->is_flag) break;
    }
    if (expanded.empty()) expanded = {word};
    all.insert(all.end(), expanded.begin(), expanded.end());
  }
  return all;
}

const Option& Option::group(const std::string& name) const {
  option_->group(name);
  return *this;
}
const Option& Option::shown_as(const std::string& text) const {
  option_->option_text(text);
  return *this;
}
const Option& Option::show_default() const {
  option_->capture_default_str();
  return *this;
}
const Option& Option::required() const {
  option_->required();
  return *this;
}
const Option& Option::excludes(const Option& other) const {
  option_->excludes(other.option_);
  return *this;
}
const Option& Option::needs(const Option& other) const {
  option_->needs(other.option_);
  return *this;
}
const Option& Option::comma_separated() const {
  option_->delimiter(',');
  return *this;
}
const Option& Option::repeated() const {
  option_->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return *this;
}
const Option& Option::positive() const {
  option_->check(numbers("POSITIVE", "more than 0", [](double x) { return x > 0; }));
  return *this;
}
const Option& Option::non_negative() const {
  option_->check(numbers("NONNEGATIVE", "0 or more", [](double x) { return x >= 0; }));
  return *this;
}
const Option& Option::between(i64 least, i64 most) const {
  const std::string range = std::to_string(least) + " … " + std::to_string(most);
  const auto lowest = static_cast<double>(least), highest = static_cast<double>(most);
  option_->check(
      numbers("in " + range, range, [=](double x) { return lowest <= x && x <= highest; }));
  return *this;
}
const Option& Option::one_of(std::vector<std::string> words) const {
  option_->check(CLI::IsMember(std::move(words)));
  return *this;
}
const Option& Option::check(std::string (*wrong)(const std::string& word)) const {
  option_->check(wrong);
  return *this;
}

template <class T>
std::string plain_integer(const std::string& text) {
  if (std::is_unsigned_v<T> && text.starts_with("-")) return "wanted 0 or more, got " + text;
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  const std::size_t first = text.starts_with('-') ? 1 : 0;
  const bool octal = text.size() > first + 1 && text[first] == '0';
  const bool plain = status == std::errc{} && stop == end && !octal;
  return plain ? "" : "wanted a whole number, got " + text;
}
template std::string plain_integer<i64>(const std::string& text);
template std::string plain_integer<std::uint64_t>(const std::string& text);

template <class T>
Option Options::add_option(const std::string& name, T& value, const std::string& help) const {
  CLI::Option* const added = app_->add_option(with_short_name(name), value, help);
  if constexpr (std::is_same_v<T, double>) added->check(any_number);
  if constexpr (std::is_integral_v<T>) added->check(plain_integer<T>);
  if constexpr (std::is_same_v<T, std::optional<std::uint64_t>>) {
    added->check(plain_integer<std::uint64_t>);
  }
  return Option(added);
}
template Option Options::add_option(const std::string&, int&, const std::string&) const;
template Option Options::add_option(const std::string&, i64&, const std::string&) const;
template Option Options::add_option(const std::string&, std::uint64_t&, const std::string&) const;
template Option Options::add_option(const std::string&, std::optional<std::uint64_t>&,
                                    const std::string&) const;
template Option Options::add_option(const std::string&, double&, const std::string&) const;
template Option Options::add_option(const std::string&, std::string&, const std::string&) const;
template Option Options::add_option(const std::string&, std::vector<i64>&,
                                    const std::string&) const;
template Option Options::add_option(const std::string&, std::vector<std::uint64_t>&,
                                    const std::string&) const;
template Option Options::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&) const;

Option Options::add_flag(const std::string& name, bool& value, const std::string& help) const {
  return Option(app_->add_flag(with_short_name(name), value, help));
}

void Options::add_printing_flag(const std::string& name, std::function<void()> print,
                                const std::string& help) const {
  app_->add_flag_callback(
      name,
      [print = std::move(print)] {
        print();
        throw CLI::Success();
      },
      help);
}

Option Options::help() const { return Option(app_->get_help_ptr()); }

void Options::excluded_by(const Option& option, const std::string& group) const {
  for (CLI::Option* other : app_->get_options()) {
    if (other->get_group() == group) option.excludes(Option(other));
  }
}

void Options::when_read(std::function<void()> act) const { app_->final_callback(std::move(act)); }
bool Options::given(const std::string& name) const { return app_->count(name) > 0; }

std::vector<OptionFacts> Options::all() const {
  std::vector<OptionFacts> list;
  for (const CLI::Option* option : app_->get_options()) {
    const std::string type = option->get_type_name();  // "INT", or "INT:CHECK"
    const OptionKind kind = option->get_expected_max() == 0         ? OptionKind::flag
                            : option->get_items_expected_max() > 1 ? OptionKind::integers
                            : type.starts_with("TEXT")             ? OptionKind::text
                            : type.starts_with("FLOAT")            ? OptionKind::number
                                                                   : OptionKind::integer;
    list.push_back({option->get_name(), option->get_group(), kind});
  }
  return list;
}

std::string Options::name() const {
  const CLI::App* const program = app_->get_parent();
  return (program == nullptr ? "" : program->get_name() + " ") + app_->get_name();
}

void Options::refuse_extras(const std::string& shown) const {
  for (const std::string& word : app_->remaining()) {
    const std::string name = word.substr(0, word.find('='));
    require(name.starts_with("-"), "'{}' follows no option", word);
    std::vector<std::string> known;
    for (const OptionFacts& option : all()) known.push_back(option.name);
    fail("there is no option {}{} {} --help lists them all", name, hint(name, known, "--"), shown);
  }
}

Option add_plugin_option(const Options& options) {
  const auto load = [](const std::vector<std::string>& files) {
    for (const std::string& file : files) load_plugin(file);
  };
  return Option(options.parser()
                    .add_option_function<std::vector<std::string>>("--plugin", load, plugin_help)
                    ->type_name("FILE"))
      .repeated();
}

std::unique_ptr<CLI::App> new_parser(const std::string& description, const std::string& name) {
  auto parser = std::make_unique<CLI::App>(description, name);
  parser->formatter(std::make_shared<Help>());
  return parser;
}

Program::Program(const std::string& description, const std::string& name)
    : Program(new_parser(description, name)) {}
Program::Program(std::unique_ptr<CLI::App> app) : Options(*app), app_(std::move(app)) {}
Program::~Program() = default;

std::optional<int> Program::parse(int argc, char** argv) {
  app_->allow_extras();
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Error& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);
    fail("{}", error.what());
  }
  refuse_extras(name().empty() ? argv[0] : name());
  return {};
}

void Program::parse(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());
  try {
    app_->parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    fail("{}", error.what());
  }
}

}  // namespace weft
