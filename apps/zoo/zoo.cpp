// zoo: the attention mechanisms that weft knows.
//
//     zoo          a table of all, in Markdown: the README's
//     zoo NAME     one fact sheet, with its page of equations
#include <cstdio>

#include <fmt/format.h>

#include "apps/common/output.h"
#include "ops/attention/mechanism.h"
#include "runtime/error.h"

namespace weft {
namespace {

std::string joined(const std::vector<std::string>& words, const char* between,
                   const char* none = "") {
  return words.empty() ? none : fmt::format("{}", fmt::join(words, between));
}

std::string masks_of(const Mechanism& m) {
  std::vector<std::string> words;
  if (m.masks.lengths) words.push_back(m.masks.query_lengths ? "lengths of both" : "lengths");
  if (m.masks.bias) words.push_back("bias");
  return joined(words, ", ", "none");
}

// Whether the past can be kept from the future.
std::string causal_of(const Mechanism& m) {
  if (!m.masks.causal) return "no";
  if (!m.strictly_causal) return m.causal_only ? "only, and leaks" : "leaks";
  return m.causal_only ? "only" : "yes";
}

std::string values_of(const OptionSheet& option) {
  if (!option.choices.empty()) return joined(option.choices, "/");
  return fmt::format("{:g} … {:g}", option.least, option.most);
}

void print_table() {
  fmt::print("| mechanism | what | paper | equations | time | memory | masks | causal | two "
             "sequences | decoding | options |\n"
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Mechanism* m : mechanisms()) {
    std::vector<std::string> options;
    for (const OptionSheet& option : m->options) {
      options.push_back(fmt::format("`{}={}`", option.name, option.initial));
    }
    // A wrapper has what its inner mechanism has.
    const auto fact = [&](const std::string& own) { return m->wrapper ? "as inner" : own; };
    fmt::print("| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
               m->name + (m->wrapper ? "/…" : ""), m->title, m->paper, m->equations, m->scaling,
               fact(m->memory), fact(masks_of(*m)), fact(causal_of(*m)),
               fact(m->cross ? "yes" : "no"), m->decode != nullptr ? "yes" : "no",
               joined(options, " "));
  }
}

const char* source_of(const AttentionInput& input) {
  switch (input.role) {
    case Role::projected: return "projected";
    case Role::sequence: return "the sequence itself";
    case Role::parameter: return "learnt";
    case Role::state: return "state";
    case Role::bias: return "added to the scores";
  }
  return "";
}

void print_sheet(const Mechanism& m) {
  fmt::print("{}: {}\n\n", m.name, m.title);
  fmt::print("paper      {}\n", m.paper);
  fmt::print("equations  {}\n", m.equations);
  fmt::print("time       {}\n", m.scaling);
  if (m.wrapper) {
    fmt::print("a wrapper  {0}:option=value/inner:option=value; inputs, masks and facts are those of "
               "the inner mechanism\n", m.name);
  } else {
    fmt::print("memory     {}\n", m.memory);
    fmt::print("masks      {}\n", masks_of(m));
    fmt::print("causal     {}\n", causal_of(m));
    fmt::print("two sequences {}\n", m.cross ? "yes" : "no");
  }
  fmt::print("decoding   {}\n", m.decode != nullptr ? "step by step" : "no");
  if (!m.inputs.empty()) fmt::print("\ninputs\n");
  for (const AttentionInput& input : m.inputs) {
    fmt::print("  {:<12} [{}]  {}{}{}\n", input.name, input.shape, source_of(input),
               input.biased ? ", with a bias" : "", input.optional ? ", may be absent" : "");
  }
  if (!m.choices.empty()) fmt::print("\ndrawn or decided\n");
  for (const AttentionChoice& choice : m.choices) {
    fmt::print("  {:<12} [{}]  {}; {}\n", choice.name, choice.shape,
               choice.integer ? "integers" : "numbers",
               choice.accepted ? "can be handed in" : "comes out only");
  }
  if (!m.options.empty()) fmt::print("\noptions\n");
  for (const OptionSheet& option : m.options) {
    fmt::print("  {:<16} {:<10} {} ({})\n", option.name, option.initial, option.help,
               values_of(option));
  }
  fmt::print("\n{}", page_of(m));
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    weft::require(words.size() < 2 && (words.empty() || words[0][0] != '-' || words[0] == "--help"),
                  "wanted nothing, for the table, or the name of one mechanism");
    if (words.empty()) {
      weft::print_table();
    } else if (words[0] == "--help") {
      fmt::print("zoo: the attention mechanisms that weft knows\n\n  zoo        a table of all\n"
                 "  zoo NAME   one fact sheet, with its equations\n");
    } else {
      weft::print_sheet(weft::mechanism(words[0]));
    }
    weft::flush_output();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "zoo: {}\n", error.what());
    return 2;
  }
}
