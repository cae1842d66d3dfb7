// A raster picture with text, written and read as PNG (libpng; the letters are FreeType's).
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
  Colour& at(i64 x, i64 y);                                // from the upper left
  const Colour* pixels() const { return pixels_.data(); }  // [height, width]
  void fill(i64 x, i64 y, i64 width, i64 height, Colour colour);

  enum class Align { left, centre, right };
  // A line of ASCII text whose baseline is at y. Throws where no font is found.
  void write(i64 x, i64 y, const std::string& text, int pixels, Align align = Align::left);

  // Reads a PNG file of any kind; what is transparent is laid on white. The colours are sRGB's, or
  // as gAMA and cHRM have it; a colour profile is passed over. Throws, with the file's name, where
  // it is none, is damaged, or has more than 2^22 pixels, or 2^16 in a row.
  static Picture load(const std::string& path);
  // The same picture with so many pixels, by the triangle filter: linear between pixels where it
  // grows, the mean over the pixels around where it shrinks.
  Picture resized(i64 width, i64 height) const;

  // Throws where the file cannot be written; then nothing is left of it.
  void save(const std::string& path) const;

 private:
  i64 width_, height_;
  std::vector<Colour> pixels_;
};

// Pixels that `text` takes across.
i64 text_width(const std::string& text, int pixels);

}  // namespace weft
