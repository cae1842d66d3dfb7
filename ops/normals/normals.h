// Standard normal numbers for the random weights of mechanisms: number i of a key is a function of
// the key and of i, the same on any device and for any number of threads.
//
// A key has blocks of four random words (Philox, runtime/random.h), and Box and Muller take two
// words for a number (G. E. P. Box, M. E. Muller, Annals of Mathematical Statistics 29(2), 1958).
#pragma once

#include "runtime/device.h"
#include "runtime/random.h"
#include "runtime/types.h"

namespace weft {

class Tensor;

// Number i, if a block of words gives `each` numbers: 1, from its first two words, or 2.
constexpr double normal_number(const RandomKey& key, i64 each, i64 i) {
  const Philox words = key.words(static_cast<std::uint64_t>(i / each));
  return i % each == 0 ? normal(words.word[0], words.word[1])
                       : normal(words.word[2], words.word[3]);
}

// Writes the numbers first, first + 1, … to the elements of a packed tensor of f32 or f64.
void draw_normals(const RandomKey& key, i64 each, const Tensor& to, i64 first = 0);

template <class Device, class T>
struct NormalsKernels {
  static void draw(const Device&, const RandomKey& key, i64 each, i64 first, i64 count, T* to);
};

}  // namespace weft
