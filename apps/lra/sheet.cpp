#include "apps/lra/sheet.h"

#include <filesystem>

#include "apps/data/cifar.h"
#include "apps/data/picture.h"

namespace weft::lra {
namespace {

constexpr i64 columns = 16, enlarged = 3, gap = 4, cell = picture_size * enlarged + gap;
constexpr Colour frame{70, 90, 140};

// Draws the pixels with the upper left corner at (x0, y0).
void place(Picture& sheet, i64 x0, i64 y0, std::span<const std::uint8_t> pixels) {
  for (i64 p = 0; p < static_cast<i64>(pixels.size()); ++p) {
    const std::uint8_t grey = pixels[static_cast<std::size_t>(p)];
    sheet.fill(x0 + p % picture_size * enlarged, y0 + p / picture_size * enlarged, enlarged,
               enlarged, {grey, grey, grey});
  }
}

Picture sheet_of(const Sequences& part, i64 classes) {
  Picture sheet(columns * cell + gap, classes * cell + gap, frame);
  std::vector<i64> placed(static_cast<std::size_t>(classes), 0);
  for (i64 i = 0; i < part.count(); ++i) {
    const i64 label = part.labels[static_cast<std::size_t>(i)];
    i64& column = placed[static_cast<std::size_t>(label)];
    if (column == columns) continue;
    place(sheet, gap + cell * column++, gap + cell * label, part.at(i));
  }
  return sheet;
}

}  // namespace

void write_sheets(const SequenceTask& task, const std::string& folder) {
  std::filesystem::create_directories(folder);
  const auto classes = static_cast<i64>(task.classes.size());
  for (const std::string name : {"train", "validation", "test"}) {
    sheet_of(task.part(name), classes).save(folder + "/" + name + ".png");
  }
}

}  // namespace weft::lra
