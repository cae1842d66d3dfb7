#include "apps/lra/image.h"

#include <array>

#include "apps/data/cifar.h"

namespace weft::lra {
namespace {

std::uint8_t grey(const std::uint8_t* rgb) {
  const i64 weighted = 2989 * rgb[0] + 5870 * rgb[1] + 1140 * rgb[2];
  return static_cast<std::uint8_t>(weighted * 511 / 5'100'000);  // 255.5 / 255 / 10,000
}

void add_pictures(const Pictures& pictures, i64 from, i64 to, Sequences& part) {
  std::array<std::uint8_t, picture_bytes / 3> pixels;
  for (i64 i = from; i < to; ++i) {
    for (std::size_t p = 0; p < pixels.size(); ++p) pixels[p] = grey(pictures.at(i) + 3 * p);
    part.add(pixels, pictures.labels[static_cast<std::size_t>(i)]);
  }
}

}  // namespace

SequenceTask read_image(const std::string& folder) {
  const PictureSet set = load_pictures(folder, "cifar-10");
  const i64 count = set.train.count(), kept = count - count / 10;
  require(kept < count, "{}: has {} training pictures; wanted at least 10", folder, count);
  SequenceTask task;
  task.source = folder;
  task.classes = set.classes;
  task.longest = picture_bytes / 3;
  add_pictures(set.train, 0, kept, task.train);
  add_pictures(set.train, kept, count, task.validation);
  add_pictures(set.test, 0, set.test.count(), task.test);
  return task;
}

}  // namespace weft::lra
