// Options of a command line. Only options.cpp includes the parser's headers, CLI11's, which take
// longer to compile than what most programs say with them.
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

// A handle; each word about the option returns it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  const Option& group(const std::string& name) const;  // its heading in --help
  const Option& show_default() const;
  const Option& required() const;
  const Option& excludes(const Option& other) const;
  const Option& needs(const Option& other) const;
  // A list: words with commas between them; or the option once for each, of which all count.
  const Option& comma_separated() const;
  const Option& repeated() const;
  // What its values may be.
  const Option& positive() const;
  const Option& non_negative() const;
  const Option& between(i64 least, i64 most) const;
  const Option& one_of(std::vector<std::string> words) const;
  // `wrong` returns what is wrong with a word, nothing where it is right.
  const Option& check(std::string (*wrong)(const std::string& word)) const;

 private:
  CLI::Option* option_;
};

// A check: what is wrong where a word is no decimal integer of this type; the parser itself would
// wrap a negative one round, read 010 as 8, and stop at the largest.
template <class T>
std::string plain_integer(const std::string& text);

enum class OptionKind { flag, text, number, integer, integers };

struct OptionFacts {
  std::string name;   // "--batch"
  std::string group;  // its heading in --help
  OptionKind kind;
};

// The options of one command. What is added refers to its value until the line was read.
class Options {
 public:
  explicit Options(CLI::App& app) : app_(&app) {}

  // Without dashes in its name: what stands on the line without an option before it.
  template <class T>
  Option add_option(const std::string& name, T& value, const std::string& help = "") const;
  Option add_flag(const std::string& name, bool& value, const std::string& help = "") const;
  // A flag that prints something and ends the program.
  void add_printing_flag(const std::string& name, std::function<void()> print,
                         const std::string& help) const;
  Option help() const;
  void excluded_by(const Option& option, const std::string& group) const;  // all of a group
  void when_read(std::function<void()> act) const;  // takes the place of one that was given before
  bool given(const std::string& name) const;
  std::string name() const;
  std::vector<OptionFacts> all() const;
  // Throws for the first word that no option took, with the option that may be meant; `shown` is what
  // one types before --help. The parser leaves such words to this.
  void refuse_extras(const std::string& shown) const;
  CLI::App& parser() const { return *app_; }

 private:
  CLI::App* app_;
};

// Adds the option --name: a flag, with --no-name, for a bool.
template <class T>
Option add_value(const Options& options, const std::string& name, T& value, const char* help) {
  const std::string option = "--" + name;
  if constexpr (std::is_same_v<T, bool>) {
    return options.add_flag(option + ",!--no-" + name, value, help);
  } else if constexpr (std::is_same_v<T, std::vector<std::uint64_t>>) {
    const Option made = options.add_option(option, value, help);
    return made.comma_separated().check(plain_integer<std::uint64_t>);
  } else {
    const Option made = options.add_option(option, value, help).show_default();
    if constexpr (std::is_integral_v<T>) made.check(plain_integer<T>);
    return made;
  }
}

// The option --plugin of every program. The files are loaded while the line is read, before
// anything looks for a mechanism.
Option add_plugin_option(const Options& options);

// The command line of a program without commands.
class Program : public Options {
 public:
  explicit Program(const std::string& description, const std::string& name = "");
  Program(Program&&) = default;
  ~Program();

  // Reads the line; the status to end with after --help and its like, otherwise nothing. A line
  // that is wrong is an Error, with the option that may be meant where there is none such.
  std::optional<int> parse(int argc, char** argv);
  // Words in the order of a line; throws Error.
  void parse(std::vector<std::string> words);

 private:
  explicit Program(std::unique_ptr<CLI::App> app);
  std::unique_ptr<CLI::App> app_;
};

}  // namespace weft
