// Command-line options. Only options.cpp and command_line.cpp include the headers of the parser,
// CLI11, which take longer to compile than most programs.
//
//     Program program("what it does", "name");
//     program.add_option("--batch", batch, "items").positive().show_default();
//     if (const auto status = program.parse(argc, argv)) return *status;
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/types.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft {

// One letter for the options that are typed most: -o DIR, -oDIR, -fq.
struct ShortOption {
  char letter;
  const char* name;
  bool is_flag;
};
inline constexpr ShortOption short_options[] = {
    {'a', "--attention", false}, {'b', "--batch", false},  {'c', "--config", false},
    {'d', "--data", false},      {'f', "--force", true},   {'n', "--steps", false},
    {'o', "--out", false},       {'p', "--preset", false}, {'q', "--quiet", true},
    {'r', "--resume", true},     {'s', "--seed", false},   {'t', "--threads", false},
};
// The same words with long names alone, by which programs look for the options that a line gives; a
// word that is no short option stays as it is.
std::vector<std::string> with_long_names(const std::vector<std::string>& words);

// A handle to an option. Each setter returns it, so that calls can be chained.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  const Option& group(const std::string& name) const;  // its heading in --help
  // `text` follows its name in --help, in place of its type and of the options that it excludes.
  const Option& shown_as(const std::string& text) const;
  const Option& show_default() const;
  const Option& required() const;
  const Option& excludes(const Option& other) const;
  const Option& needs(const Option& other) const;
  // Makes the option a list: comma-separated words, and the option may be repeated.
  const Option& comma_separated() const;
  const Option& repeated() const;
  // Limits on the values.
  const Option& positive() const;
  const Option& non_negative() const;
  const Option& between(i64 least, i64 most) const;
  const Option& one_of(std::vector<std::string> words) const;
  // `wrong` returns an error message for a bad value, and an empty string for a good one.
  const Option& check(std::string (*wrong)(const std::string& word)) const;

 private:
  CLI::Option* option_;
};

// A check: an error message unless the word is a decimal integer in the range of T. The parser
// itself wraps negative numbers, reads 010 as octal, and saturates.
template <class T>
std::string plain_integer(const std::string& text);

enum class OptionKind { flag, text, number, integer, integers };

struct OptionFacts {
  std::string name;   // "--batch"
  std::string group;  // its heading in --help
  OptionKind kind;
};

// The options of one command. An added option holds a reference to its value until the line is
// parsed.
class Options {
 public:
  explicit Options(CLI::App& app) : app_(&app) {}

  // A name without dashes adds a positional argument.
  template <class T>
  Option add_option(const std::string& name, T& value, const std::string& help = "") const;
  Option add_flag(const std::string& name, bool& value, const std::string& help = "") const;
  // Adds a flag that prints something and ends the program.
  void add_printing_flag(const std::string& name, std::function<void()> print,
                         const std::string& help) const;
  Option help() const;
  void excluded_by(const Option& option, const std::string& group) const;  // all of a group
  void when_read(std::function<void()> act) const;  // called after parsing; replaces an earlier one
  bool given(const std::string& name) const;
  std::string name() const;  // "charlm train"
  std::vector<OptionFacts> all() const;
  // Throws for the first word that no option consumed, and suggests a known option. `shown` is the
  // command to quote before --help. The parser itself is told to ignore such words.
  void refuse_extras(const std::string& shown) const;
  CLI::App& parser() const { return *app_; }

 private:
  CLI::App* app_;
};

// Adds the option --name; for a bool a flag, with --no-name.
template <class T>
Option add_value(const Options& options, const std::string& name, T& value, const char* help) {
  const std::string option = "--" + name;
  if constexpr (std::is_same_v<T, bool>) {
    return options.add_flag(option + ",!--no-" + name, value, help);
  } else if constexpr (std::is_same_v<T, std::vector<std::uint64_t>>) {
    const Option made = options.add_option(option, value, help);
    return made.comma_separated().check(plain_integer<std::uint64_t>);
  } else {
    return options.add_option(option, value, help).show_default();
  }
}

// Adds --plugin, which every program has. Plugins are loaded during parsing, before any mechanism
// is looked up.
Option add_plugin_option(const Options& options);

// A parser whose --help has lines of at most 80 columns, in its subcommands too.
std::unique_ptr<CLI::App> new_parser(const std::string& description, const std::string& name);

// The command line of a program without subcommands.
class Program : public Options {
 public:
  explicit Program(const std::string& description, const std::string& name = "");
  Program(Program&&) = default;
  ~Program();

  // Parses the line. Returns the exit status after --help and similar flags, otherwise nothing.
  // Throws Error for a bad line; for an unknown option with a suggestion.
  std::optional<int> parse(int argc, char** argv);
  // Parses words in command-line order; throws Error.
  void parse(std::vector<std::string> words);

 private:
  explicit Program(std::unique_ptr<CLI::App> app);
  std::unique_ptr<CLI::App> app_;
};

}  // namespace weft
