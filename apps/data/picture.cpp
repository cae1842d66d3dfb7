#include "apps/data/picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include <ft2build.h>
#include FT_FREETYPE_H
#include <png.h>

#include "apps/data/unicode.h"
#include "nn/file.h"
#include "runtime/error.h"

namespace weft {
namespace {

constexpr const char* fonts[] = {"/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
                                 "/usr/share/fonts/TTF/DejaVuSans.ttf",
                                 "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
                                 "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf"};

// The program's font face, which is loaded once, set to a size. The library owns it, and frees it
// at the program's end.
FT_Face face_of(int pixels) {
  static const std::unique_ptr<FT_LibraryRec_, decltype(&FT_Done_FreeType)> library = [] {
    FT_Library made = nullptr;
    require(FT_Init_FreeType(&made) == 0, "picture: FreeType cannot be initialised");
    return std::unique_ptr<FT_LibraryRec_, decltype(&FT_Done_FreeType)>(made, FT_Done_FreeType);
  }();
  static const FT_Face face = [] {
    FT_Face found = nullptr;
    if (const char* const named = std::getenv("WEFT_FONT")) {
      require(FT_New_Face(library.get(), named, 0, &found) == 0,
              "picture: WEFT_FONT: {} is not a font file that can be read", named);
      return found;
    }
    for (const char* font : fonts) {
      if (std::filesystem::exists(font) && FT_New_Face(library.get(), font, 0, &found) == 0) {
        return found;
      }
    }
    fail(
        "picture: no font found; install fonts-dejavu-core, name a file in WEFT_FONT, or write "
        ".safetensors");
  }();
  require(FT_Set_Pixel_Sizes(face, 0, static_cast<FT_UInt>(pixels)) == 0,
          "picture: the font has no size {}", pixels);
  return face;
}

// Calls use(glyph) for each character of a text: the font's, or that of '?' where it has none.
void each_glyph(int pixels, const std::string& text, const auto& use) {
  const FT_Face face = face_of(pixels);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint letter = code_point_of_any(text, at);
    at += letter.bytes;
    const FT_ULong code = FT_Get_Char_Index(face, letter.value) != 0 ? letter.value : U'?';
    require(FT_Load_Char(face, code, FT_LOAD_RENDER) == 0, "picture: the font has no letter {}",
            static_cast<std::uint32_t>(code));
    use(face->glyph);
  }
}

// A file of a few kilobytes may claim any size. This many pixels take 12 MB, and libpng adds three
// rows of up to 8 bytes a pixel.
constexpr i64 most_pixels = 1 << 22, most_across = 1 << 16;

// Removes the chunks that do not affect the pixels. libpng would decompress them, and a text or
// colour profile of a few kilobytes can expand to 8 MB.
void keep_pixels(std::string& bytes) {
  constexpr std::string_view besides[] = {"tRNS", "gAMA", "cHRM", "sRGB"};
  constexpr std::size_t signature = 8, around = 12;  // length and name before, checksum after
  const auto byte = [&](std::size_t at) {
    return std::size_t{static_cast<unsigned char>(bytes[at])};
  };
  std::size_t to = std::min(signature, bytes.size()), at = to;
  while (bytes.size() - at >= around) {
    const std::size_t length =
        byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    if (length > bytes.size() - at - around) break;
    const std::string_view name = std::string_view(bytes).substr(at + 4, 4);
    const bool needed = (name[0] & 32) == 0;  // upper case: a critical chunk
    const std::size_t end = at + around + length;
    if (needed || std::find(std::begin(besides), std::end(besides), name) != std::end(besides)) {
      std::memmove(&bytes[to], &bytes[at], end - at);
      to += end - at;
    }
    at = end;
  }
  bytes.erase(to, at - to);
}

// For each pixel of the new axis, the contributing pixels of the old axis and their weights.
std::vector<std::vector<std::pair<i64, double>>> triangle_weights(i64 from, i64 to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(1.0, scale);
  std::vector<std::vector<std::pair<i64, double>>> all(static_cast<std::size_t>(to));
  for (i64 i = 0; i < to; ++i) {
    auto& list = all[static_cast<std::size_t>(i)];
    const double centre = (static_cast<double>(i) + 0.5) * scale - 0.5;
    const auto first = static_cast<i64>(std::ceil(centre - reach));
    double sum = 0;
    for (i64 j = std::max<i64>(0, first); j < from; ++j) {
      const double weight = 1 - std::abs(static_cast<double>(j) - centre) / reach;
      if (static_cast<double>(j) > centre + reach) break;
      if (weight <= 0) continue;
      list.emplace_back(j, weight);
      sum += weight;
    }
    for (auto& [place, weight] : list) weight /= sum;
  }
  return all;
}

}  // namespace

Picture::Picture(i64 width, i64 height, Colour ground)
    : width_(width), height_(height), pixels_(static_cast<std::size_t>(width * height), ground) {}

Colour& Picture::at(i64 x, i64 y) {
  require(x >= 0 && x < width_ && y >= 0 && y < height_, "picture: ({}, {}) is outside {} x {}", x,
          y, width_, height_);
  return pixels_[static_cast<std::size_t>(y * width_ + x)];
}

void Picture::fill(i64 x, i64 y, i64 width, i64 height, Colour colour) {
  for (i64 j = 0; j < height; ++j) {
    for (i64 i = 0; i < width; ++i) at(x + i, y + j) = colour;
  }
}

i64 text_width(const std::string& text, int pixels) {
  i64 width = 0;
  each_glyph(pixels, text, [&](FT_GlyphSlot glyph) { width += glyph->advance.x / 64; });
  return width;
}

void Picture::write(i64 x, i64 y, const std::string& text, int pixels, Align align) {
  if (align != Align::left) {
    x -= text_width(text, pixels) / (align == Align::centre ? 2 : 1);
  }
  each_glyph(pixels, text, [&](FT_GlyphSlot glyph) {
    const FT_Bitmap& bitmap = glyph->bitmap;
    for (unsigned row = 0; row < bitmap.rows; ++row) {
      for (unsigned column = 0; column < bitmap.width; ++column) {
        const i64 to_x = x + glyph->bitmap_left + static_cast<i64>(column);
        const i64 to_y = y - glyph->bitmap_top + static_cast<i64>(row);
        if (to_x < 0 || to_x >= width_ || to_y < 0 || to_y >= height_) continue;
        const int ink = bitmap.buffer[row * static_cast<unsigned>(bitmap.pitch) + column];
        Colour& pixel = at(to_x, to_y);
        const auto inked = [&](std::uint8_t ground) {
          return static_cast<std::uint8_t>(ground * (255 - ink) / 255);
        };
        pixel = {inked(pixel.red), inked(pixel.green), inked(pixel.blue)};
      }
    }
    x += glyph->advance.x / 64;
  });
}

Picture Picture::load(const std::string& path) {
  std::string bytes = read_file(path);
  keep_pixels(bytes);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> freed(&image, png_image_free);
  require(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) != 0,
          "{}: is not a PNG picture: {}", path, image.message);
  require(i64{image.width} * image.height <= most_pixels && image.width <= most_across,
          "{}: has {} x {} pixels, more than {}, or than {} in a row; make it smaller", path,
          image.width, image.height, most_pixels, most_across);
  Picture picture(image.width, image.height);
  image.format = PNG_FORMAT_RGB;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // assume sRGB if the file does not specify a gamma
  const png_color white{255, 255, 255};
  require(png_image_finish_read(&image, &white, picture.pixels_.data(), 0, nullptr) != 0,
          "{}: is a damaged PNG picture: {}", path, image.message);
  return picture;
}

Picture Picture::resized(i64 width, i64 height) const {
  const auto across = triangle_weights(width_, width), down = triangle_weights(height_, height);
  std::vector<std::array<double, 3>> rows(static_cast<std::size_t>(height_ * width));
  for (i64 y = 0; y < height_; ++y) {
    for (i64 x = 0; x < width; ++x) {
      auto& sum = rows[static_cast<std::size_t>(y * width + x)];
      for (const auto& [from, weight] : across[static_cast<std::size_t>(x)]) {
        const Colour& pixel = pixels_[static_cast<std::size_t>(y * width_ + from)];
        sum[0] += weight * pixel.red, sum[1] += weight * pixel.green, sum[2] += weight * pixel.blue;
      }
    }
  }
  Picture picture(width, height);
  for (i64 y = 0; y < height; ++y) {
    for (i64 x = 0; x < width; ++x) {
      std::array<double, 3> sum{};
      for (const auto& [from, weight] : down[static_cast<std::size_t>(y)]) {
        for (std::size_t c = 0; c < 3; ++c) {
          sum[c] += weight * rows[static_cast<std::size_t>(from * width + x)][c];
        }
      }
      const auto rounded = [](double v) { return static_cast<std::uint8_t>(std::lround(v)); };
      picture.at(x, y) = {rounded(sum[0]), rounded(sum[1]), rounded(sum[2])};
    }
  }
  return picture;
}

void Picture::save(const std::string& path) const {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width_);
  image.height = static_cast<png_uint_32>(height_);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<std::byte> bytes(size);
  const int done =
      png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels_.data(), 0, nullptr);
  require(done != 0, "{}: libpng: {}", path, image.message);
  OutputFile file(path);
  file.write(std::span(bytes).first(size));
  file.commit();
}

}  // namespace weft
