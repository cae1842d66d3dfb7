#include "bench/summary.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "apps/command_line/progress.h"

namespace weft::bench {
namespace {

double number(const Row& row, const char* key) {
  return row.contains(key) && row[key].is_number() ? row[key].get<double>() : NAN;
}

double time_of(const Row& row) { return number(row, "forward_ms") + number(row, "backward_ms"); }

template <class F>
std::vector<Point> points(const std::vector<Row>& rows, const F& value) {
  std::vector<Point> result;
  for (const Row& row : rows) result.push_back({row["length"].get<double>(), value(row)});
  return result;
}

// With the percentiles of that time: forward's, or "" for forward and backward.
std::vector<Point> times(const std::vector<Row>& rows, const std::string& of) {
  std::vector<Point> result;
  for (const Row& row : rows) {
    const double median = of.empty() ? time_of(row) : number(row, (of + "ms").c_str());
    const double low = number(row, (of + "p10_ms").c_str());
    const double high = number(row, (of + "p90_ms").c_str());
    if (std::isnan(median)) continue;  // it has no backward
    result.push_back({row["length"].get<double>(), median, std::isnan(low) ? median : low,
                      std::isnan(high) ? median : high});
  }
  return result;
}

template <class F>
std::optional<Exponent> exponent(const std::vector<Row>& rows, const F& value) {
  return fit_exponent(upper_half(points(rows, value)));
}

std::string text_of(const std::optional<Exponent>& e) {
  return e ? fmt::format("{:.2f} ± {:.2f}", e->slope, e->error) : "–";
}
std::string slope_of(const std::optional<Exponent>& e) {
  return e ? fmt::format("{:.2f}", e->slope) : "–";
}

std::string text_of(const Crossover& c) {
  const std::string longest = grouped(std::llround(c.longest));
  switch (c.kind) {
    case Crossover::Kind::never:
      return "not up to " + longest;
    case Crossover::Kind::always:
      return "from " + grouped(std::llround(c.shortest));
    case Crossover::Kind::at:
      return "from " + grouped(std::llround(c.length));
    case Crossover::Kind::unknown:
      break;
  }
  return "–";
}

Row json_of(const std::optional<Exponent>& e) {
  if (!e) return nullptr;
  return {{"slope", e->slope}, {"error", e->error}, {"points", e->points}};
}

Row json_of(const Crossover& c) {
  constexpr const char* kinds[] = {"unknown", "never", "always", "at"};
  Row json = {{"kind", kinds[static_cast<int>(c.kind)]}};
  if (c.kind == Crossover::Kind::at) json["length"] = c.length;
  if (c.kind != Crossover::Kind::unknown)
    json["shortest"] = c.shortest, json["longest"] = c.longest;
  return json;
}

// Characters, not bytes: "±" and "–" are one each.
std::string padded(const std::string& text, std::size_t width) {
  std::size_t shown = 0;
  for (const char c : text) shown += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return text + std::string(shown < width ? width - shown : 0, ' ');
}

}  // namespace

std::vector<Curve> curves_of(const std::vector<Row>& rows) {
  std::vector<Curve> curves;
  for (const Row& row : rows) {
    const std::string name = row["name"];
    if (curves.empty() || curves.back().name != name) curves.push_back({.name = name});
    curves.back().rows.push_back(row);
  }
  const auto full =
      std::find_if(curves.begin(), curves.end(), [](const Curve& c) { return c.name == baseline; });
  for (Curve& curve : curves) {
    curve.time = exponent(curve.rows, time_of);
    curve.memory = exponent(curve.rows, [](const Row& row) { return number(row, "peak_bytes"); });
    curve.expected_time =
        exponent(curve.rows, [](const Row& row) { return number(row, "operations"); });
    curve.expected_memory =
        exponent(curve.rows, [](const Row& row) { return number(row, "expected_peak_bytes"); });
    const auto differ = [](const auto& measured, const auto& wanted) {
      return measured && wanted && disagree(*measured, *wanted, exponent_tolerance);
    };
    curve.time_disagrees = differ(curve.time, curve.expected_time);
    curve.memory_disagrees = differ(curve.memory, curve.expected_memory);
    if (full != curves.end() && curve.name != baseline) {
      curve.both = crossover(times(curve.rows, ""), times(full->rows, ""));
      curve.forward = crossover(times(curve.rows, "forward_"), times(full->rows, "forward_"));
    }
  }
  return curves;
}

std::string table_of(const std::vector<Curve>& curves) {
  const char length = curves.empty() ? 'N' : letter_of_length(curves[0].rows[0]);
  std::size_t width = 25;
  for (const Curve& c : curves) width = std::max(width, c.name.size() + 1);
  const auto line = [&](const std::string& name, const std::vector<std::string>& cells) {
    std::string text = padded(name, width);
    for (std::size_t i = 0; i < cells.size(); ++i) text += padded(cells[i], i % 2 == 0 ? 14 : 7);
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = line("", {fmt::format("time ~ {}^", length), "sheet",
                               fmt::format("memory ~ {}^", length), "sheet", "longest"});
  for (const Curve& c : curves) {
    text +=
        line(c.name, {text_of(c.time) + (c.time_disagrees ? " !" : ""), slope_of(c.expected_time),
                      text_of(c.memory) + (c.memory_disagrees ? " !" : ""),
                      slope_of(c.expected_memory), grouped(c.rows.back()["length"].get<i64>())});
  }
  const auto meets_full = [](const Curve& c) {
    return c.both.kind != Crossover::Kind::unknown || c.forward.kind != Crossover::Kind::unknown;
  };
  if (std::any_of(curves.begin(), curves.end(), meets_full)) {
    text += "\n" + padded("", width) + padded("faster than full", 21) + "forward alone\n";
    for (const Curve& c : curves) {
      if (meets_full(c)) {
        text += padded(c.name, width) + padded(text_of(c.both), 21) + text_of(c.forward) + "\n";
      }
    }
  }
  for (const Curve& c : curves) {
    if (c.time_disagrees || c.memory_disagrees) {
      text += fmt::format(
          "! {}: measured {} and fact sheet disagree\n  by more than {} and two standard errors\n",
          c.name,
          !c.memory_disagrees ? "time"
          : c.time_disagrees  ? "time, memory"
                              : "memory",
          exponent_tolerance);
    }
  }
  return text;
}

Row summary_of(const std::vector<Row>& lines, const Row& identity) {
  const std::vector<Row> rows = rows_of_run(lines, identity);
  Row json = identity;
  for (auto& [key, value] : json.items()) {  // as when it was measured
    if (!rows.empty() && rows.back().contains(key)) value = rows.back()[key];
  }
  Row& list = json["curves"] = Row::array();
  for (const Curve& c : curves_of(rows)) {
    Row points = Row::array();
    for (const Row& row : c.rows) {
      points.push_back({{"length", row["length"]}, {"ms", time_of(row)}});
      for (const char* key :
           {"forward_ms", "backward_ms", "p10_ms", "p90_ms", "peak_bytes", "expected_peak_bytes"}) {
        if (row.contains(key)) points.back()[key] = row[key];
      }
    }
    list.push_back({{"name", c.name},
                    {"points", points},
                    {"time", json_of(c.time)},
                    {"expected_time", json_of(c.expected_time)},
                    {"time_disagrees", c.time_disagrees},
                    {"memory", json_of(c.memory)},
                    {"expected_memory", json_of(c.expected_memory)},
                    {"memory_disagrees", c.memory_disagrees},
                    {"faster_than_full", json_of(c.both)},
                    {"forward_faster_than_full", json_of(c.forward)}});
  }
  Row& left_out = json["left_out"] = Row::array();
  for (auto line = lines.begin(); line != lines.end(); ++line) {
    const Key key = key_of(*line);
    const bool later =
        std::any_of(line + 1, lines.end(), [&](const Row& other) { return key_of(other) == key; });
    if ((*line)["kind"] == "row" || !is_of_run(*line, identity) || later) continue;
    left_out.push_back({{"name", key.name},
                        {"length", key.length},
                        {"kind", (*line)["kind"]},
                        {"reason", line->value("reason", "")}});
  }
  return json;
}

}  // namespace weft::bench
