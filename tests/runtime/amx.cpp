#include "runtime/amx.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/check.h"

namespace weft {
namespace {

// The instructions that runtime/amx.h uses, by their pseudocode in the manual that it names. What a
// processor would fault at is noted.
struct EmulatedTiles {
  struct State {
    bool configured = false;
    std::array<i64, 8> rows = {}, row_bytes = {};
    std::array<std::array<std::array<std::uint32_t, 16>, 16>, 8> tiles = {};
    i64 configurations = 0, multiplications = 0;
    std::string fault;
  };
  static State& state() {
    static State of;
    return of;
  }
  static void fault_if(bool is, const char* what) {
    if (is && state().fault.empty()) state().fault = what;
  }

  static void configure(const amx::Configuration& of) {
    State& s = state();
    fault_if(of.palette != 1 || of.start_row != 0, "a palette other than 1, or a start row");
    for (const std::uint8_t byte : of.reserved) fault_if(byte != 0, "a reserved byte");
    for (std::size_t tile = 0; tile < 16; ++tile) {
      const i64 rows = of.rows[tile], bytes = of.row_bytes[tile];
      fault_if(tile >= 8 && (rows != 0 || bytes != 0), "a ninth tile");
      fault_if(rows > 16 || bytes > 64 || (rows == 0) != (bytes == 0), "the size of a tile");
      if (tile < 8) s.rows[tile] = rows, s.row_bytes[tile] = bytes, s.tiles[tile] = {};
    }
    s.configured = true, ++s.configurations;
  }
  static void release() { state().configured = false; }

  static void used(std::size_t tile) {
    fault_if(!state().configured || state().rows[tile] == 0, "a tile that is not configured");
  }
  template <int Tile>
  static void zero() {
    used(Tile), state().tiles[Tile] = {};
  }
  template <int Tile>
  static void load(const void* from, i64 stride) {
    used(Tile);
    State& s = state();
    s.tiles[Tile] = {};
    for (i64 i = 0; i < s.rows[Tile]; ++i) {
      std::memcpy(s.tiles[Tile][std::size_t(i)].data(), static_cast<const char*>(from) + i * stride,
                  std::size_t(s.row_bytes[Tile]));
    }
  }
  template <int Tile>
  static void store(void* to, i64 stride) {
    used(Tile);
    const State& s = state();
    for (i64 i = 0; i < s.rows[Tile]; ++i) {
      std::memcpy(static_cast<char*>(to) + i * stride, s.tiles[Tile][std::size_t(i)].data(),
                  std::size_t(s.row_bytes[Tile]));
    }
  }

  // Subnormal operands and results count as 0.
  static float flushed(float x) {
    return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
  }
  static float half(std::uint32_t pair, int which) {
    return flushed(std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xffff0000u));
  }
  template <int C, int A, int B>
  static void multiply() {
    used(C), used(A), used(B);
    State& s = state();
    fault_if(s.rows[C] != s.rows[A] || s.row_bytes[C] != s.row_bytes[B] ||
                 s.row_bytes[A] != 4 * s.rows[B],
             "sizes of tiles that do not match");
    fault_if(C == A || C == B || A == B, "a tile that stands twice");
    ++s.multiplications;
    for (std::size_t m = 0; m < std::size_t(s.rows[C]); ++m) {
      for (std::size_t n = 0; n < std::size_t(s.row_bytes[C] / 4); ++n) {
        std::array<float, 2> sums = {};  // of the first and of the second numbers of the pairs
        for (std::size_t k = 0; k < std::size_t(s.row_bytes[A] / 4); ++k) {
          for (int which = 0; which < 2; ++which) {
            float& sum = sums[std::size_t(which)];
            sum = flushed(
                std::fma(half(s.tiles[A][m][k], which), half(s.tiles[B][k][n], which), sum));
          }
        }
        const float before = flushed(std::bit_cast<float>(s.tiles[C][m][n]));
        s.tiles[C][m][n] =
            std::bit_cast<std::uint32_t>(flushed(before + flushed(sums[0] + sums[1])));
      }
    }
  }
};

Bf16Pair pair_of(const bf16& first, const bf16& second) {
  return static_cast<Bf16Pair>(first.bits | std::uint32_t(second.bits) << 16);
}

// The largest error of a product of pairs, in units of 2⁻²⁴ Σ |a| |b|; infinite if it wrote outside
// C. A lies by rows, or transposed, or its columns are two apart; B and C have gaps.
enum class Lies { by_rows, transposed, scattered };
template <class Product>
double worst_of_pairs(i64 rows, i64 columns, i64 depth, Lies lies, bool add, const Product& f) {
  const auto numbers = [](i64 count, std::uint64_t seed) {
    return random_normal({count}, DType::f32, seed).to(DType::bf16);
  };
  const i64 b_row = columns + 5, c_row = columns + 3;
  const Tensor a = numbers(rows * depth * 2, 1), b = numbers(depth * columns * 2, 2);
  const Tensor c = random_normal({rows, c_row}, DType::f32, 3), before = c.clone();
  const auto a_at = [&](i64 i, i64 k) { return a.data<bf16>() + (i * depth + k) * 2; };
  const auto b_at = [&](i64 k, i64 j) { return b.data<bf16>() + (k * columns + j) * 2; };
  const i64 row = lies == Lies::by_rows ? depth + 1 : lies == Lies::transposed ? 1 : 2 * depth;
  const i64 column = lies == Lies::by_rows ? 1 : lies == Lies::transposed ? rows + 1 : 2;
  std::vector<Bf16Pair> left(std::size_t((rows + 1) * (depth + 1) * 2));
  std::vector<Bf16Pair> right(std::size_t(depth * b_row));
  for (i64 k = 0; k < depth; ++k) {
    for (i64 i = 0; i < rows; ++i) {
      left[std::size_t(i * row + k * column)] = pair_of(a_at(i, k)[0], a_at(i, k)[1]);
    }
    for (i64 j = 0; j < columns; ++j) {
      right[std::size_t(k * b_row + j)] = pair_of(b_at(k, j)[0], b_at(k, j)[1]);
    }
  }
  f(rows, columns, depth, Strided<Bf16Pair>{left.data(), row, column},
    Rows<const Bf16Pair>{right.data(), b_row}, Rows<float>{c.data<float>(), c_row}, add);
  double worst = 0;
  for (i64 i = 0; i < rows; ++i) {
    for (i64 j = 0; j < c_row; ++j) {
      const double was = double(before.view<float, 2>()(i, j)),
                   got = double(c.view<float, 2>()(i, j));
      if (j >= columns) {
        if (was != got) return std::numeric_limits<double>::infinity();
        continue;
      }
      double sum = add ? was : 0, size = std::abs(sum);
      for (i64 k = 0; k < depth; ++k) {
        for (int which = 0; which < 2; ++which) {
          const double product =
              double(float(a_at(i, k)[which])) * double(float(b_at(k, j)[which]));
          sum += product, size += std::abs(product);
        }
      }
      worst = worse(worst, std::abs(sum - got) / (std::ldexp(size, -24) + 1e-30));
    }
  }
  return worst;
}

template <class I>
void product_on(i64 rows, i64 columns, i64 depth, Strided<Bf16Pair> a, Rows<const Bf16Pair> b,
                Rows<float> c, bool add) {
  amx::product<I>(rows, columns, depth, a, b, c, add, tile_product<Bf16Pair>);
}

// Sizes around a tile, two tiles, and the panel of a transposed A.
template <class I>
void check_sizes() {
  for (const i64 rows : {3, 16, 41, 64}) {
    for (const i64 columns : {15, 16, 32, 53}) {
      for (const i64 depth : {7, 16, 45, 160}) {
        for (const Lies lies : {Lies::by_rows, Lies::transposed, Lies::scattered}) {
          for (const bool add : {false, true}) {
            CAPTURE(rows);
            CAPTURE(columns);
            CAPTURE(depth);
            CAPTURE(int(lies));
            CAPTURE(add);
            // A product passes at most 2 depth + 1 additions; each rounds by half a unit at most.
            CHECK(worst_of_pairs(rows, columns, depth, lies, add, product_on<I>) <=
                  double(2 * depth + 1));
          }
        }
      }
    }
  }
}

TEST_SUITE("runtime") {

TEST_CASE("products of pairs of bf16 on tiles, emulated") {
  EmulatedTiles::state() = {};
  check_sizes<EmulatedTiles>();
  const auto& s = EmulatedTiles::state();
  CHECK(s.fault == "");
  CHECK_FALSE(s.configured);  // or every switch of threads would save the tiles
  CHECK(s.multiplications > 1000);
}

TEST_CASE("a thread configures its tiles once for many products") {
  using Configured = amx::Configured<EmulatedTiles>;
  EmulatedTiles::state() = {};
  const auto& s = EmulatedTiles::state();
  const auto multiply = [] {
    CHECK(worst_of_pairs(32, 32, 32, Lies::by_rows, false, product_on<EmulatedTiles>) <= 65);
  };
  {
    const Configured outer;
    multiply();
    CHECK(s.configured);
    {
      const Configured inner;
      multiply();
    }
    CHECK(s.configured);
    multiply();
  }
  CHECK_FALSE(s.configured);
  CHECK(s.configurations == 1);
  multiply();
  CHECK_FALSE(s.configured);
  CHECK(s.configurations == 2);
  CHECK(s.fault == "");
}

TEST_CASE("products of pairs of bf16 on tiles") {
  if (!amx::permitted()) {
    MESSAGE("this processor has no AMX");
    return;
  }
  check_sizes<amx::Instructions>();
}

}  // TEST_SUITE("runtime")
}  // namespace
}  // namespace weft
