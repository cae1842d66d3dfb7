#include "apps/attend/map.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "apps/common/picture.h"
#include "nn/checkpoint.h"

namespace weft {
namespace {

constexpr std::int64_t most_pixels = 720, least_side = 240;
constexpr int letters = 14;
constexpr Colour grey{90, 90, 90};

// White to dark blue, by lightness.
Colour shade(double share) {
  constexpr std::array<std::array<double, 3>, 5> stops{
      {{255, 255, 255}, {190, 215, 235}, {95, 160, 210}, {25, 95, 165}, {8, 35, 85}}};
  const double place = std::clamp(share, 0.0, 1.0) * (stops.size() - 1);
  const auto low = std::min<std::size_t>(static_cast<std::size_t>(place), stops.size() - 2);
  const auto mixed = [&](std::size_t i) {
    const double part = place - static_cast<double>(low);
    return static_cast<std::uint8_t>(
        std::lround(stops[low][i] * (1 - part) + stops[low + 1][i] * part));
  };
  return {mixed(0), mixed(1), mixed(2)};
}

// A step of 1, 2 or 5 times a power of ten, for some six ticks.
std::int64_t tick_step(std::int64_t count) {
  std::int64_t step = 1;
  for (int i = 0; step * 6 < count; ++i) step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  return step;
}

// Cells of the matrix along an axis: so many share a pixel, or so many pixels show one.
struct Axis {
  std::int64_t cells, pooled, pixels;
  explicit Axis(std::int64_t count, std::int64_t longest)
      : cells(count),
        pooled((count + most_pixels - 1) / most_pixels),
        pixels(std::max<std::int64_t>(1, (longest < least_side ? least_side : most_pixels) /
                                             std::max(longest, std::int64_t{1}))) {}
  std::int64_t size() const { return pooled > 1 ? (cells + pooled - 1) / pooled : cells * pixels; }
  std::int64_t place(std::int64_t cell) const { return pooled > 1 ? cell / pooled : cell * pixels; }
  std::int64_t width() const { return pooled > 1 ? 1 : pixels; }
};

void draw(const Tensor& weights, const std::string& title, const std::string& path) {
  const Tensor map = weights.to(DType::f64).packed();
  const View<double, 2> w = map.view<double, 2>();
  const std::int64_t longest = std::max(map.size(0), map.size(1));
  const Axis down(map.size(0), longest), across(map.size(1), longest);
  double most = 0;
  for (const double value : map.to_vector<double>()) most = std::max(most, value);
  const std::int64_t left = 72, top = 64, bar = 18, gap = 24, right = 84, bottom = 56;
  const std::int64_t plot = left + across.size() + gap + bar + right;
  Picture picture(std::max(plot, text_width(title, letters) + 40), top + down.size() + bottom);
  picture.write(picture.width() / 2, 24, title, letters, Picture::Align::centre);
  picture.fill(left - 1, top - 1, across.size() + 2, down.size() + 2, grey);
  picture.fill(left, top, across.size(), down.size(), {255, 255, 255});
  std::vector<double> pixels(static_cast<std::size_t>(across.size() * down.size()), 0);
  for (std::int64_t i = 0; i < down.cells; ++i) {
    for (std::int64_t j = 0; j < across.cells; ++j) {  // of pooled cells the largest shows
      double& pixel = pixels[static_cast<std::size_t>(down.place(i) * across.size() +
                                                      across.place(j))];
      pixel = std::max(pixel, w(i, j));
      if (most == 0) continue;
      picture.fill(left + across.place(j), top + down.place(i), across.width(), down.width(),
                   shade(pixel / most));
    }
  }
  for (std::int64_t j = 0; j < across.cells; j += tick_step(across.cells)) {
    const std::int64_t x = left + across.place(j) + across.width() / 2;
    picture.fill(x, top + down.size() + 1, 1, 5, grey);
    picture.write(x, top + down.size() + 20, std::to_string(j), letters - 2,
                  Picture::Align::centre);
  }
  for (std::int64_t i = 0; i < down.cells; i += tick_step(down.cells)) {
    const std::int64_t y = top + down.place(i) + down.width() / 2;
    picture.fill(left - 6, y, 5, 1, grey);
    picture.write(left - 10, y + 4, std::to_string(i), letters - 2, Picture::Align::right);
  }
  picture.write(left + across.size() / 2, top + down.size() + 42, "key", letters,
                Picture::Align::centre);
  picture.write(left - 10, top - 12, "query", letters, Picture::Align::right);
  const std::int64_t at = left + across.size() + gap;
  for (std::int64_t y = 0; y < down.size(); ++y) {
    picture.fill(at, top + down.size() - 1 - y, bar, 1,
                 shade((static_cast<double>(y) + 0.5) / static_cast<double>(down.size())));
  }
  picture.write(at + bar + 6, top + 10, fmt::format("{:.3g}", most), letters - 2);
  picture.write(at + bar + 6, top + down.size(), "0", letters - 2);
  picture.write(at, top - 12, "weight", letters);
  picture.save(path);
}

}  // namespace

void write_map(const Tensor& weights, const std::string& title, const std::string& path) {
  if (path.ends_with(".safetensors")) {
    write_checkpoint({{{"map", weights}}, {{"title", title}}}, path);
    return;
  }
  require(path.ends_with(".png"), "--map {}: wanted a name that ends with .png or .safetensors",
          path);
  draw(weights, title, path);
}

}  // namespace weft
