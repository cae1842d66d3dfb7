// A raster picture, read and written as PNG by libpng, with text drawn by FreeType.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/types.h"

namespace weft {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
};

class Picture {
 public:
  Picture(i64 width, i64 height, Colour ground = {255, 255, 255});

  i64 width() const { return width_; }
  i64 height() const { return height_; }
  Colour& at(i64 x, i64 y);                                // origin: upper left
  const Colour* pixels() const { return pixels_.data(); }  // [height, width]
  void fill(i64 x, i64 y, i64 width, i64 height, Colour colour);

  enum class Align { left, centre, right };
  // Draws a line of text in UTF-8 with its baseline at y, and '?' for characters that the font
  // lacks. Throws if no font is found.
  void write(i64 x, i64 y, const std::string& text, int pixels, Align align = Align::left);

  // Reads any PNG file and blends transparent pixels with white. Colours are sRGB, or as gAMA and
  // cHRM specify; colour profiles are ignored. Throws, with the file's name, for a file that is not
  // PNG, is damaged, or has more than 2^22 pixels or 2^16 in a row.
  static Picture load(const std::string& path);
  // The picture resampled with the triangle filter: linear interpolation where it grows, a weighted
  // mean of the pixels around where it shrinks.
  Picture resized(i64 width, i64 height) const;

  // Throws if the file cannot be written; a partial file is removed.
  void save(const std::string& path) const;

 private:
  i64 width_, height_;
  std::vector<Colour> pixels_;
};

// The width of `text` in pixels.
i64 text_width(const std::string& text, int pixels);

}  // namespace weft
