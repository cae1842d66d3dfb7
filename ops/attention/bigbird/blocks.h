// Which blocks a block of queries sees; the rules are in bigbird.h.
#pragma once

#include "ops/attention/engines/pairs/block_lists.h"
#include "ops/attention/length.h"
#include "runtime/random.h"

namespace weft {

// The r random blocks of block t of n, 0 < t < n − 1, are a function of these.
struct RandomBlocks {
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
  i64 r = 0;

  static constexpr i64 window_begin(i64 t) { return t - 1 < 1 ? 1 : t - 1; }
  static constexpr i64 window_end(i64 t, i64 n) { return t + 2 > n - 1 ? n - 1 : t + 2; }

  // Without repetition by R. W. Floyd's algorithm (J. Bentley, B. Floyd, "A sample of brilliance",
  // CACM 30(9), 1987) from the blocks between block 0 and block n − 1 outside the window.
  constexpr void draw(i64 head, i64 t, i64 n, i64* blocks) const {
    const RandomKey key =
        RandomKey{seed, static_cast<std::uint32_t>(n), layer}.further(DrawPurpose::random_blocks);
    const i64 begin = window_begin(t), others = n - 2 - (window_end(t, n) - begin);
    const i64 drawn = r < others ? r : others;
    const auto place = (static_cast<std::uint64_t>(head) << 32 | static_cast<std::uint64_t>(t))
                       << 16;
    const auto taken = [&](i64 k, i64 block) {
      for (i64 before = 0; before < k; ++before) {
        if (blocks[before] == block) return true;
      }
      return false;
    };
    const auto block_at = [&](i64 number) {
      return 1 + number < begin ? 1 + number : 1 + number + window_end(t, n) - begin;
    };
    for (i64 k = 0; k < r; ++k) {
      if (k >= drawn) {
        blocks[k] = -1;
        continue;
      }
      const i64 last = others - drawn + k;  // numbers 0 … last can be drawn
      const std::uint32_t word = key.words(place + static_cast<std::uint64_t>(k / 4)).word[k % 4];
      const i64 block = block_at(below(word, static_cast<std::uint32_t>(last + 1)));
      blocks[k] = taken(k, block) ? block_at(last) : block;
    }
  }
};

// A sheet for each item, if items have lengths, and head: what their blocks see.
struct BigBirdBlocks {
  RandomBlocks rule;
  const i64* lengths = nullptr;  // [items], or null
  i64 items = 1, heads = 1, positions = 0, size = 1;
  // [1 or items, heads, blocks − 2, r]: drawn unless given.
  i64* blocks_drawn = nullptr;
  const i64* blocks_given = nullptr;
  i64 items_given = 1;
  BlockRun* runs = nullptr;  // [items, heads, blocks, width]

  static constexpr i64 runs_of(i64 random) { return 3 + random; }
  constexpr i64 width() const { return runs_of(rule.r); }
  constexpr i64 blocks() const { return (positions + size - 1) / size; }
  constexpr i64 count() const { return items * heads * blocks(); }

  // Block i % blocks() of a sheet.
  constexpr void operator()(i64 i) const {
    const i64 t = i % blocks(), h = i / blocks() % heads, b = i / blocks() / heads;
    const i64 n = (length_of(lengths, b, positions) + size - 1) / size, r = rule.r;
    const auto place = [&](i64 item) { return ((item * heads + h) * (blocks() - 2) + t - 1) * r; };
    BlockRun* const row = runs + i * width();
    for (i64 k = 0; k < width(); ++k) row[k] = {0, 0};
    const bool inside = 0 < t && t < n - 1;
    if (blocks_drawn != nullptr && 0 < t && t < blocks() - 1) {
      i64* const drawn = blocks_drawn + place(b);
      if (inside) rule.draw(h, t, n, drawn);
      for (i64 k = 0; !inside && k < r; ++k) drawn[k] = -1;
    }
    const auto run = [](i64 first, i64 all) {
      return BlockRun{static_cast<std::int32_t>(first), static_cast<std::int32_t>(all)};
    };
    if (!inside) {
      if (t < n) row[0] = run(0, n);
      return;
    }
    row[0] = run(0, 1);
    row[1] = run(t - 1, 3);
    row[2] = run(n - 1, 1);
    const i64* const random =
        blocks_given != nullptr ? blocks_given + place(b % items_given) : blocks_drawn + place(b);
    for (i64 k = 0; k < r; ++k) {
      if (0 <= random[k] && random[k] < n) row[3 + k] = run(random[k], 1);
    }
  }
};

template <class Device>
struct BigBirdKernels {
  // Draws what is not given, and writes the runs of all sheets.
  static void fill(const Device&, const BigBirdBlocks&);
};

}  // namespace weft
