#include "apps/zoo/tables.h"

#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "apps/command_line/wrapped.h"
#include "apps/zoo/facts.h"

namespace weft {
namespace {

using Cells = std::vector<std::string>;

constexpr std::size_t widest = 100;

void add_row(std::string& text, const Cells& row, const std::vector<std::size_t>& widths) {
  std::vector<Cells> cells;
  std::size_t lines = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    cells.push_back(wrapped(row[i], widths[i]));
    lines = std::max(lines, cells[i].size());
  }
  for (std::size_t line = 0; line < lines; ++line) {
    std::string all;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string cell = line < cells[i].size() ? cells[i][line] : "";
      all += cell + std::string(widths[i] + 2 - columns_of(cell), ' ');
    }
    text += all.substr(0, all.find_last_not_of(' ') + 1) + "\n";
  }
}

// The fact `own`; for a wrapper it is that of the inner mechanism.
std::string fact(const Mechanism& m, const std::string& own) {
  return m.wrapper ? "as inner" : own;
}
std::string shown_name(const Mechanism& m) { return m.name + (m.wrapper ? "/…" : ""); }

}  // namespace

std::string plain_table() {
  constexpr std::size_t title = 1, longest_cell = 18;
  std::vector<Cells> rows = {{"mechanism", "what", "causal", "time", "memory"}};
  for (const Mechanism* m : mechanisms()) {
    rows.push_back({shown_name(*m), m->title, fact(*m, causal_of(Sheet(*m))), fact(*m, m->scaling),
                    fact(*m, m->memory)});
  }
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i != title) widths[i] = std::clamp(columns_of(row[i]), widths[i], longest_cell);
    }
  }
  const std::size_t others = std::accumulate(widths.begin(), widths.end(), std::size_t{0});
  const std::size_t between = 2 * (widths.size() - 1);
  widths[title] = widest - others - between;  // at least 20
  std::string text;
  for (const Cells& row : rows) add_row(text, row, widths);
  return text +
         "\nzoo NAME has the options, inputs and equations of one; --markdown and --json have all "
         "columns\n";
}

std::string markdown_table() {
  std::string text =
      "| mechanism | what | paper | equations | time | memory | masks | causal | two sequences | "
      "decoding | options |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const Mechanism* m : mechanisms()) {
    Cells options;
    for (const OptionSheet& option : m->options) {
      options.push_back(fmt::format("`{}={}`", option.name, option.initial));
    }
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                        shown_name(*m), m->title, m->paper, m->equations, m->scaling,
                        fact(*m, m->memory), fact(*m, masks_of(*m)), fact(*m, causal_of(Sheet(*m))),
                        fact(*m, m->cross ? "yes" : "no"), decoding_of(Sheet(*m), "yes"),
                        joined(options, " "));
  }
  return text;
}

}  // namespace weft
