#include "runtime/cuda/emulated/mma_instructions.h"

#include <bit>

namespace weft {
namespace {

using emulated::OfLanes;
using emulated::warp_size;

float half_of(std::uint32_t both, int upper) {
  return std::bit_cast<float>(upper != 0 ? both & 0xffff0000u : both << 16);
}

struct Product {
  float* c;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

// c += a b, gathered from the lanes and given back to them.
void multiply(OfLanes lanes) {
  float a[16][16], b[16][8], c[16][8];
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    const Product& own = *static_cast<const Product*>(lanes[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned row = i == 0 || i == 1 || i == 4 || i == 5 ? g : g + 8;
      a[row][2 * t + (i & 1) + (i >= 4 ? 8 : 0)] = half_of(own.a[i / 2], i & 1);
    }
    for (unsigned i = 0; i < 4; ++i) {
      b[2 * t + (i & 1) + (i >= 2 ? 8 : 0)][g] = half_of(own.b[i / 2], i & 1);
      c[i < 2 ? g : g + 8][2 * t + (i & 1)] = own.c[i];
    }
  }
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < 8; ++n) c[m][n] += a[m][k] * b[k][n];
    }
  }
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    float* const own = static_cast<const Product*>(lanes[lane])->c;
    for (unsigned i = 0; i < 4; ++i) {
      own[i] = c[i < 2 ? lane / 4 : lane / 4 + 8][2 * (lane % 4) + (i & 1)];
    }
  }
}

struct Matrices {
  std::uint32_t* to;
  const std::uint16_t* row;  // that this lane names
};

template <bool trans>
void load(OfLanes lanes) {
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      const auto element = [&](unsigned row, unsigned column) -> std::uint32_t {
        return static_cast<const Matrices*>(lanes[8 * matrix + row])->row[column];
      };
      static_cast<const Matrices*>(lanes[lane])->to[matrix] =
          trans ? element(2 * t, g) | element(2 * t + 1, g) << 16
                : element(g, 2 * t) | element(g, 2 * t + 1) << 16;
    }
  }
}

void load_matrices(std::uint32_t (&m)[4], const void* row, void (*load)(OfLanes), const void* pc,
                   const WeftSite& site) {
  emulated::require_aligned(row, "ldmatrix", site);
  emulated::require_filled(row, "ldmatrix", site);
  if constexpr (emulated::accesses::seen) emulated::accesses::instruction_reads(row, 16, pc);
  Matrices own{m, static_cast<const std::uint16_t*>(row)};
  emulated::together(&own, load, site);
}

}  // namespace

void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  WeftSite site) {
  Product own{c, a, {b0, b1}};
  emulated::together(&own, multiply, site);
}

void ldmatrix_x4(std::uint32_t (&m)[4], const void* row, WeftSite site) {
  load_matrices(m, row, load<false>, __builtin_return_address(0), site);
}

void ldmatrix_x4_trans(std::uint32_t (&m)[4], const void* row, WeftSite site) {
  load_matrices(m, row, load<true>, __builtin_return_address(0), site);
}

void cp_async(void* to, const void* from, unsigned bytes, WeftSite site) {
  emulated::start_copy(to, from, bytes, __builtin_return_address(0), site);
}

}  // namespace weft
