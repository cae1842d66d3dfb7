// The dropout mask: which elements are kept, and their factor. One rule for the dropout op and for
// dropout on attention weights.
//
// A tensor is seen as rows of its last axis, with C columns. Element (row, column) is kept iff
//
//     piece >= threshold,        threshold = round(rate · 65536)
//
// where piece is the 16-bit piece number column % 8 of the four Philox words (in their order, low
// half first) for the index
//
//     (f · R + row) · ⌈C/8⌉ + ⌊column/8⌋,
//
// with R rows for each example, the examples one after the other, and f the key's first_example:
// (f · R + row) is the row in the global batch.
//
// Kept elements are multiplied by 65536 / (65536 − threshold), so that the expectation is exactly
// the input. The mask is a function of the key: it is never stored, backward draws it again.
#pragma once

#include <cmath>

#include "runtime/random.h"
#include "runtime/types.h"

namespace weft {

class Tensor;

// Throws, naming the op, unless some elements are kept.
void check_dropout_rate(const char* op, double rate);

// How many rows of a tensor belong to each example: its first axis counts examples. 0 below rank 2,
// where no axis does.
i64 rows_of_example(const Tensor& x);

struct DropoutMask {
  static constexpr i64 pieces = 8;  // decisions that one Philox index gives

  RandomKey key;
  i64 columns = 0;             // C
  std::int32_t threshold = 0;  // of 65536
  double factor = 1;           // of kept elements
  i64 first_index = 0;         // of row 0

  DropoutMask(const RandomKey& random, double rate, i64 width, i64 rows_of_example)
      : key(random),
        columns(width),
        threshold(static_cast<std::int32_t>(std::lround(rate * 65536))),
        factor(65536.0 / (65536 - threshold)),
        first_index(random.first_example * rows_of_example * indices_of_row()) {}

  constexpr i64 indices_of_row() const { return (columns + pieces - 1) / pieces; }
  constexpr std::uint64_t index(i64 row, i64 column) const {
    return static_cast<std::uint64_t>(first_index + row * indices_of_row() + column / pieces);
  }

  // Whether one element is kept.
  constexpr bool keeps(i64 row, i64 column) const {
    const std::uint32_t word = key.words(index(row, column)).word[column % pieces / 2];
    return static_cast<std::int32_t>(column % 2 == 0 ? word & 0xffff : word >> 16) >= threshold;
  }

  // Bit j: whether (row, column + j) is kept; column is a multiple of eight. One draw for all.
  constexpr unsigned keeps_eight(i64 row, i64 column) const {
    if (threshold == 0) return 0xff;
    const Philox words = key.words(index(row, column));
    unsigned kept = 0;
    for (int w = 0; w < 4; ++w) {
      const auto low = static_cast<std::int32_t>(words.word[w] & 0xffff);
      const auto high = static_cast<std::int32_t>(words.word[w] >> 16);
      kept |= ((low >= threshold ? 1u : 0u) | (high >= threshold ? 2u : 0u)) << 2 * w;
    }
    return kept;
  }
};

}  // namespace weft
