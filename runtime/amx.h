// Products of pairs of bf16 by Intel AMX: eight tile registers, each of 16 rows of 64 bytes.
//
//     tdpbf16ps c, a, b       C [16, 16] += A [16, 16 pairs] B [16 pairs, 16], sums in f32
//
// A multiplication takes 16 cycles and a load from L1 takes 8, so a block of C has 2 × 2 tiles: one
// step of 16 pairs has 4 loads for 4 multiplications. Less than 2⁻¹²⁶ counts as 0, as with
// AVX512-BF16. (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS,
// LDTILECFG; Optimization Reference Manual, chapter on AMX.)
//
// Tests give the functions below an emulation of the instructions.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft::amx {

constexpr i64 side = 16;  // rows of a tile, and its columns of 4 bytes

// The operand of ldtilecfg.
struct alignas(64) Configuration {
  std::uint8_t palette = 0, start_row = 0;
  std::array<std::uint8_t, 14> reserved = {};
  std::array<std::uint16_t, 16> row_bytes = {};
  std::array<std::uint8_t, 16> rows = {};
};
static_assert(sizeof(Configuration) == 64 && offsetof(Configuration, row_bytes) == 16 &&
              offsetof(Configuration, rows) == 48);

inline constexpr Configuration all_whole = [] {
  Configuration of;
  of.palette = 1;
  for (std::size_t tile = 0; tile < 8; ++tile) of.row_bytes[tile] = 64, of.rows[tile] = side;
  return of;
}();

// Whether the processor has the instructions and Linux lets this process use them; asks at the
// first call.
bool permitted();

// Strides in bytes. Assembly, because tile numbers are part of an instruction, and intrinsics take
// no template arguments for them.
struct Instructions {
  static void configure(const Configuration& of) { asm volatile("ldtilecfg %0" ::"m"(of)); }
  static void release() { asm volatile("tilerelease"); }
  template <int Tile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(Tile));
  }
  template <int Tile>
  static void load(const void* from, i64 stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(Tile) : "memory");
  }
  template <int Tile>
  static void store(void* to, i64 stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(Tile) : "memory");
  }
  template <int C, int A, int B>
  static void multiply() {  // C += A B
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
};

// The tile registers of this thread are configured while one lives; those within it do nothing. A
// small product takes longer if it configures them itself. Where none lives, a context switch saves
// no tiles.
template <class I>
class Configured {
 public:
  Configured() : outer_(enter()) {}
  ~Configured() { leave(outer_); }
  Configured(const Configured&) = delete;
  Configured& operator=(const Configured&) = delete;

  // Says whether the thread was configured already, which leave() wants to know.
  static bool enter() {
    if (!is_) I::configure(all_whole);
    return std::exchange(is_, true);
  }
  static void leave(bool outer) {
    if (!outer) I::release();
    is_ = outer;
  }

 private:
  static inline thread_local bool is_ = false;
  bool outer_;
};

constexpr i64 word = 4;  // bytes of a pair, and of a sum

// Tile `Tile` at the start of a tile of C.
template <class I, int Tile>
void start(const float* c, i64 stride, bool add) {
  add ? I::template load<Tile>(c, stride) : I::template zero<Tile>();
}

// R × V tiles of C; the columns of A are contiguous.
template <class I, int R, int V>
void block(i64 depth, Rows<const Bf16Pair> a, Rows<const Bf16Pair> b, Rows<float> c, bool add) {
  const i64 a_stride = a.row * word, b_stride = b.row * word, c_stride = c.row * word;
  float* const lower = c.data + side * c.row;
  start<I, 0>(c.data, c_stride, add);
  if constexpr (V > 1) start<I, 1>(c.data + side, c_stride, add);
  if constexpr (R > 1) start<I, 2>(lower, c_stride, add);
  if constexpr (R > 1 && V > 1) start<I, 3>(lower + side, c_stride, add);
  for (i64 k = 0; k < depth; k += side) {
    const Bf16Pair* const right = b.data + k * b.row;
    I::template load<4>(a.data + k, a_stride);
    I::template load<6>(right, b_stride);
    I::template multiply<0, 4, 6>();
    if constexpr (V > 1) {
      I::template load<7>(right + side, b_stride);
      I::template multiply<1, 4, 7>();
    }
    if constexpr (R > 1) {
      I::template load<5>(a.data + side * a.row + k, a_stride);
      I::template multiply<2, 5, 6>();
    }
    if constexpr (R > 1 && V > 1) I::template multiply<3, 5, 7>();
  }
  I::template store<0>(c.data, c_stride);
  if constexpr (V > 1) I::template store<1>(c.data + side, c_stride);
  if constexpr (R > 1) I::template store<2>(lower, c_stride);
  if constexpr (R > 1 && V > 1) I::template store<3>(lower + side, c_stride);
}

// tile_product() of whole tiles. Tiles are loaded by rows, so an A that is transposed is copied, a
// panel at a time.
template <class I>
void whole_tiles(i64 rows, i64 columns, i64 depth, Strided<Bf16Pair> a, Rows<const Bf16Pair> b,
                 Rows<float> c, bool add) {
  constexpr i64 high = 2 * side, deep = 8 * side;
  const Configured<I> configured;
  alignas(64) std::array<Bf16Pair, static_cast<std::size_t>(high * deep)> panel;
  for (i64 k = 0; k < depth; k += deep) {
    const i64 count = std::min(deep, depth - k);
    for (i64 i = 0; i < rows; i += high) {
      const i64 height = std::min(high, rows - i);
      Rows<const Bf16Pair> left{a.data + i * a.row + k * a.column, a.row};
      if (a.column != 1) {
        if (a.row == 1) {
          transpose<Bf16Pair>(count, height, {left.data, a.column}, {panel.data(), deep});
        } else {
          for (i64 r = 0; r < height; ++r) {
            for (i64 e = 0; e < count; ++e) {
              panel[static_cast<std::size_t>(r * deep + e)] = left.data[r * a.row + e * a.column];
            }
          }
        }
        left = {panel.data(), deep};
      }
      for (i64 j = 0; j < columns; j += high) {
        const auto run = [&]<int R, int V>() {
          block<I, R, V>(count, left, {b.data + k * b.row + j, b.row},
                         {c.data + i * c.row + j, c.row}, add || k > 0);
        };
        const bool tall = height > side, wide = columns - j > side;
        tall   ? wide ? run.template operator()<2, 2>() : run.template operator()<2, 1>()
          : wide ? run.template operator()<1, 2>()
               : run.template operator()<1, 1>();
      }
    }
  }
}

// tile_product(): whole tiles here, the tails by `rest`, which takes the same arguments.
template <class I, class Rest>
void product(i64 rows, i64 columns, i64 depth, Strided<Bf16Pair> a, Rows<const Bf16Pair> b,
             Rows<float> c, bool add, const Rest& rest) {
  const auto whole = [](i64 n) { return n / side * side; };
  const i64 high = whole(rows), wide = whole(columns), deep = whole(depth);
  if (high == 0 || wide == 0 || deep == 0) return rest(rows, columns, depth, a, b, c, add);
  whole_tiles<I>(high, wide, deep, a, b, c, add);
  if (deep < depth) {
    rest(high, wide, depth - deep, Strided<Bf16Pair>{a.data + deep * a.column, a.row, a.column},
         Rows<const Bf16Pair>{b.data + deep * b.row, b.row}, c, true);
  }
  if (wide < columns) {
    rest(high, columns - wide, depth, a, Rows<const Bf16Pair>{b.data + wide, b.row},
         Rows<float>{c.data + wide, c.row}, add);
  }
  if (high < rows) {
    rest(rows - high, columns, depth, Strided<Bf16Pair>{a.data + high * a.row, a.row, a.column}, b,
         Rows<float>{c.data + high * c.row, c.row}, add);
  }
}

}  // namespace weft::amx
