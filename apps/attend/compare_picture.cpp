#include <algorithm>

#include <fmt/core.h>

#include "apps/attend/compare.h"
#include "apps/data/picture.h"

namespace weft {
namespace {

constexpr int letters = 14;
constexpr i64 margin = 24, row_height = 30, bar_height = 16, bar_width = 220, number_width = 90,
              head = 84;
constexpr Colour dark{40, 40, 40};

struct Column {
  const char* title;
  Colour colour;
  double (*value)(const Compared& row);
  std::string (*text)(double value);
};

const Column columns[] = {{"relative error",
                           {200, 90, 60},
                           [](const Compared& row) { return row.error; },
                           [](double value) { return fmt::format("{:.3g}", value); }},
                          {"forward, ms",
                           {60, 120, 180},
                           [](const Compared& row) { return row.milliseconds; },
                           [](double value) { return fmt::format("{:.3g}", value); }},
                          {"peak, MiB",
                           {90, 150, 90},
                           [](const Compared& row) { return row.peak_bytes / (1 << 20); },
                           [](double value) { return fmt::format("{:.3g}", value); }}};

// `text` in ASCII, cut to at most `most` characters: the picture's font has no others.
std::string shown(const std::string& text, std::size_t most) {
  std::string plain;
  for (const char c : text) plain += c >= ' ' && c < 127 ? c : '?';
  return plain.size() <= most ? plain : plain.substr(0, most - 3) + "...";
}

void draw_column(Picture& picture, const Column& column, const std::vector<Compared>& rows, i64 x) {
  double most = 0;
  for (const Compared& row : rows) most = std::max(most, column.value(row));
  picture.write(x, head - 14, column.title, letters);
  const auto count = static_cast<i64>(rows.size());
  picture.fill(x, head, 1, count * row_height, dark);
  for (i64 i = 0; i < count; ++i) {
    const Compared& row = rows[static_cast<std::size_t>(i)];
    const i64 y = head + i * row_height + (row_height - bar_height) / 2;
    if (!row.refused.empty()) {
      picture.write(x + 8, y + 13, "-", letters - 1);
      continue;
    }
    const double value = column.value(row);
    const auto length = most > 0 ? static_cast<i64>(bar_width * value / most) : i64{0};
    picture.fill(x + 1, y, length, bar_height, column.colour);
    picture.write(x + length + 8, y + 13, column.text(value), letters - 1);
  }
}

}  // namespace

void draw_comparison(const std::vector<Compared>& rows, const std::string& title,
                     const std::string& path) {
  constexpr std::size_t longest_name = 60, longest_title = 150;
  i64 names = 0;
  for (const Compared& row : rows) {
    names = std::max(names, text_width(shown(row.specification, longest_name), letters));
  }
  const std::string above = shown(title, longest_title);
  const i64 left = margin + names + 16;
  const i64 all = left + std::ssize(columns) * (bar_width + number_width);
  Picture picture(std::max(all, text_width(above, letters) + 2 * margin),
                  head + std::ssize(rows) * row_height + margin);
  picture.write(margin, 30, above, letters);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    picture.write(margin, head + static_cast<i64>(i) * row_height + 20,
                  shown(rows[i].specification, longest_name), letters);
  }
  i64 x = left;
  for (const Column& column : columns) {
    draw_column(picture, column, rows, x);
    x += bar_width + number_width;
  }
  picture.save(path);
}

}  // namespace weft
