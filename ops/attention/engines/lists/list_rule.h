// Lists of edges that a rule defines in closed form, filled on the device that needs them: for
// lists that depend on lengths, which may be in its memory. A rule says what each sheet is,
//
//     sheet(number)                 the following, for this sheet
//     rows()                        rows, and keys, that have edges are among the first so many
//     edges(row), runs(row)         of its list
//     out_edges(key)                that come from it
//     each_edge(row, f)             calls f(rank, key, type) in the order of the list
//     each_out_edge(key, f)         calls f(row, rank in that row's list) in a fixed order
//
// all of them constexpr functions, which both devices call.
#pragma once

#include "ops/attention/engines/lists/edge_lists.h"

namespace weft {

template <class Rule>
struct RuledLists {
  Rule rule;
  EdgeLists lists;  // the lists to fill
  std::int32_t *starts, *from, *run_starts, *out_starts;
  TypeRun* runs;
  OutEdge* out;

  constexpr i64 sheets() const { return lists.items * lists.heads; }
  // Rows, and keys, of all sheets: count() and fill() are called for each.
  constexpr i64 lines() const { return lists.rows < lists.keys ? lists.keys : lists.rows; }
  constexpr i64 calls() const { return sheets() * lines(); }
  // The starts of a sheet: of lists, of runs, or of the transpose, by `which`.
  constexpr std::int32_t* starts_of(i64 which, i64 sheet) const {
    std::int32_t* const all[] = {starts, run_starts, out_starts};
    return all[which] + sheet * (size_of_starts(which) + 1);
  }
  constexpr i64 size_of_starts(i64 which) const { return which == 2 ? lists.keys : lists.rows; }

  // The first pass writes the counts of a line to the place of the next line's start.
  constexpr void count(i64 call) const {
    const i64 number = call / lines(), line = call % lines();
    const auto sheet = rule.sheet(number);
    const bool there = line < sheet.rows();
    const auto set = [&](i64 which, i64 value) {
      if (line < size_of_starts(which))
        starts_of(which, number)[line + 1] = static_cast<std::int32_t>(value);
    };
    set(0, there ? sheet.edges(line) : 0);
    set(1, there ? sheet.runs(line) : 0);
    set(2, there ? sheet.out_edges(line) : 0);
  }
  // After the prefix sums, the second pass writes the lists.
  constexpr void fill(i64 call) const {
    const i64 number = call / lines(), line = call % lines();
    const auto sheet = rule.sheet(number);
    if (line >= sheet.rows()) return;
    if (line < lists.rows) fill_list(sheet, number, line);
    if (line < lists.keys) fill_out_list(sheet, number, line);
  }

 private:
  template <class Sheet>
  constexpr void fill_list(const Sheet& sheet, i64 number, i64 line) const {
    TypeRun* run = runs + number * lists.run_count + starts_of(1, number)[line];
    const std::int32_t first = starts_of(0, number)[line];
    std::int32_t* const keys = from + number * lists.edges + first;
    i64 last = -1;
    sheet.each_edge(line, [&](i64 rank, i64 key, i64 type) {
      keys[rank] = static_cast<std::int32_t>(key);
      const auto edge = static_cast<std::int32_t>(first + rank);
      if (type != last) *run++ = {edge, static_cast<std::int32_t>(type)};
      last = type;
    });
  }
  template <class Sheet>
  constexpr void fill_out_list(const Sheet& sheet, i64 number, i64 line) const {
    const std::int32_t* const begin = starts_of(0, number);
    OutEdge* next = out + number * lists.edges + starts_of(2, number)[line];
    sheet.each_out_edge(line, [&](i64 to, i64 rank) {
      const auto edge = static_cast<std::int32_t>(begin[to] + rank);
      *next++ = {static_cast<std::int32_t>(to), edge};
    });
  }
};

}  // namespace weft
