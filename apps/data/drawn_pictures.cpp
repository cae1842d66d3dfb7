// The built-in set: bright shapes on dark backgrounds, with random colours, sizes and positions,
// and noise.
#include <algorithm>
#include <cmath>

#include "apps/data/cifar.h"
#include "runtime/random.h"

namespace weft {
namespace {

// Whether the point (x, y), relative to the centre, is inside the shape of a class; r is its
// radius.
bool inside(int label, double x, double y, double r) {
  const double square = std::max(std::abs(x), std::abs(y)), round = std::hypot(x, y);
  const auto odd = [](double v) { return static_cast<int>(std::floor(v / 3)) % 2 != 0; };
  switch (label) {
    case 0:
      return round < r;  // disc
    case 1:
      return round < r && round > 0.6 * r;  // ring
    case 2:
      return square < 0.85 * r;  // square
    case 3:
      return square < 0.85 * r && square > 0.5 * r;  // frame
    case 4:
      return y < 0.7 * r && std::abs(x) < 0.6 * (y + r);  // triangle
    case 5:
      return square < r && std::min(std::abs(x), std::abs(y)) < 0.25 * r;  // cross
    case 6:
      return square < r && std::abs(std::abs(x) - std::abs(y)) < 0.35 * r;  // saltire
    case 7:
      return square < r && odd(y + 30);  // rows
    case 8:
      return square < r && odd(x + 30);  // columns
    default:
      return square < r && odd(x + 30) != odd(y + 30);  // checks
  }
}

// The sequence of uniform numbers in [0, 1) for one picture.
class Draws {
 public:
  Draws(std::uint64_t seed, i64 picture) : key_{seed, static_cast<std::uint32_t>(picture), 0} {}
  double next() {
    const std::uint64_t i = taken_++;
    return uniform(key_.words(i / 4).word[i % 4]);
  }
  double between(double low, double high) { return low + (high - low) * next(); }

 private:
  RandomKey key_;
  std::uint64_t taken_ = 0;
};

}  // namespace

Pictures drawn_pictures(std::uint64_t seed, i64 count) {
  constexpr double noise = 20;
  Pictures pictures;
  pictures.pixels.reserve(static_cast<std::size_t>(count * picture_bytes));
  for (i64 i = 0; i < count; ++i) {
    Draws draws(seed, i);
    const auto label = static_cast<int>(10 * draws.next());
    const double radius = draws.between(7, 12), reach = 16 - radius;
    const double x0 = 15.5 + draws.between(-reach, reach), y0 = 15.5 + draws.between(-reach, reach);
    double ground[3], figure[3];
    for (int c = 0; c < 3; ++c) {
      ground[c] = draws.between(0, 100), figure[c] = draws.between(130, 255);
    }
    for (i64 y = 0; y < picture_size; ++y) {
      for (i64 x = 0; x < picture_size; ++x) {
        const bool drawn = inside(label, double(x) - x0, double(y) - y0, radius);
        for (int c = 0; c < 3; ++c) {
          const double value = (drawn ? figure : ground)[c] + draws.between(-noise, noise);
          pictures.pixels.push_back(static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0)));
        }
      }
    }
    pictures.labels.push_back(static_cast<std::uint8_t>(label));
  }
  return pictures;
}

}  // namespace weft
