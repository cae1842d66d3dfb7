// causal_conv1d of bf16 on the CPU, in pairs along the depth of each product (runtime/operands.h).
//
// The window of a position is still a range of memory. dW is summed along the positions, and tap k
// multiplies rows that begin at k: with pairs of rows, the even taps share one copy of the rows and
// the odd taps another, which begins a row later.
#include <cstring>
#include <limits>

#include "ops/conv1d/blocks.h"
#include "ops/conv1d/conv1d.h"
#include "runtime/operands.h"
#include "runtime/pack.h"
#include "runtime/row_sums.h"
#include "runtime/scratch.h"

namespace weft {
namespace {

using conv1d::block, conv1d::Block, conv1d::Blocks, conv1d::Sizes, conv1d::sizes_of;
using O = Operand<bf16>;
using Rows16 = PackedRows<bf16>;

constexpr i64 copies = in_pairs<bf16> ? 2 : 1;

// Taps c, c + copies, c + 2 copies, …
i64 taps_of(i64 W, i64 c) { return (W - c + copies - 1) / copies; }

// Rows first … first + rows − 1 of a sequence [N, width]: zeros outside of it.
void copy_window(const bf16* sequence, i64 N, i64 width, i64 first, i64 rows, bf16* to) {
  const i64 before = std::clamp<i64>(-first, 0, rows),
            after = std::clamp(first + rows - N, i64{0}, rows);
  const i64 there = rows - before - after;
  std::fill_n(to, before * width, bf16());
  std::memcpy(to + before * width, sequence + (first + before) * width,
              static_cast<std::size_t>(there * width) * sizeof(bf16));
  std::fill_n(to + (before + there) * width, after * width, bf16());
}

// windows ∗ taps of some rows [.., width]: z [rows, columns]. `taps` has pairs along the width.
void correlate(i64 rows, i64 width, i64 columns, i64 W, const bf16* window, O* memory,
               const O* taps, float* z) {
  const i64 reached = rows + W - 1;
  const Rows16 windows(reached, width, Along::width, memory);
  windows.pack(reached, 1, window, width);
  tile_product<O>(rows, columns, W * operands<bf16>(width), windows.along_width(0), {taps, columns},
                  {z, columns}, false);
}

}  // namespace

template <>
void CausalConv1dKernels<Cpu, bf16>::forward(const Cpu&, const CausalConv1d::Saved& saved,
                                             const Tensor& offset, bool relu,
                                             const Tensor& result) {
  const Sizes s = sizes_of(saved.x, saved.weight);
  const Blocks blocks(s);
  const bf16 *const x = saved.x.data<bf16>(), *const weight = saved.weight.data<bf16>();
  const float* const bias = offset.data<float>();
  bf16* const y = result.data<bf16>();
  const Scratch<O> taps(s.W * operands<bf16>(s.n) * s.m);
  O* next = taps.data();
  for (i64 k = 0; k < s.W; ++k) {
    Rows16(s.n, s.m, Along::rows, next).pack(s.n, 1, weight + k * s.n * s.m, s.m);
  }
  const Pack<float> least(relu ? 0 : -std::numeric_limits<double>::infinity());  // a NaN is kept
  const i64 most = std::min(s.N, block), reached = most + s.W - 1;
  const ThreadScratch<bf16> windows(blocks.count, reached * s.n);
  const ThreadScratch<O> packed(blocks.count, reached * operands<bf16>(s.n));
  const ThreadScratch<float> sums(blocks.count, most * s.m);
  parallel_for(blocks.count, [&](i64 i) {
    const Block at(blocks, i);
    bf16* const window = windows.mine();
    float* const z = sums.mine();
    copy_window(x + at.sequence * s.n, s.N, s.n, at.begin - s.W + 1, at.rows + s.W - 1, window);
    correlate(at.rows, s.n, s.m, s.W, window, packed.mine(), taps.data(), z);
    for (i64 t = 0; t < at.rows; ++t) {
      each_pack<float>(s.m, [&](i64 e, i64 n) {
        const auto value = Pack<float>::load(z + t * s.m + e, n) + Pack<float>::load(bias + e, n);
        where(value < least, least, value).store(y + (at.at() + t) * s.m + e, n);
      });
    }
  });
}

template <>
std::array<Tensor, 3> CausalConv1dKernels<Cpu, bf16>::backward(const Cpu&,
                                                               const CausalConv1d::Saved& saved,
                                                               const Tensor& gradient) {
  const Sizes s = sizes_of(saved.x, saved.weight);
  const Blocks blocks(s);
  const bf16 *const x = saved.x.data<bf16>(), *const dy = gradient.data<bf16>();
  const bf16* const weight = saved.weight.data<bf16>();
  const bf16* const y = saved.y.defined() ? saved.y.data<bf16>() : nullptr;
  const Tensor inner = Tensor::empty_like(saved.x);
  bf16* const dx = inner.data<bf16>();
  const i64 wide = operands<bf16>(s.m), size = s.n * s.m, count = s.W * size;
  const Scratch<O> back(s.W * wide * s.n);  // W_{W−1−j}ᵀ
  O* next = back.data();
  for (i64 j = 0; j < s.W; ++j) {
    Rows16(s.m, s.n, Along::rows, next).pack(s.m, 1, weight + (s.W - 1 - j) * size, 1, s.m);
  }
  const i64 most = std::min(s.N, block), reached = most + s.W;  // one row more for a pair
  const i64 tasks = row_parts(blocks.count, 1), pairs = operands<bf16>(reached) + 1;
  const ThreadScratch<bf16> windows(tasks, reached * (s.n + s.m));
  const ThreadScratch<O> packed(tasks, std::max(reached * wide, (2 * pairs * s.n + pairs * s.m)));
  const ThreadScratch<float> sums_of_rows(tasks, most * s.n);
  const Tensor sums = Tensor::empty({count + s.m}, DType::f32);  // dW by copies, followed by db
  const auto gather = [&](i64 i, i64, float* part) {
    if (blocks.count == 0) return;
    const Block at(blocks, i);
    bf16 *const dz = windows.mine(), *const window = dz + reached * s.m;
    float* const z = sums_of_rows.mine();
    // dz where y > 0, up to where the windows of the last rows end.
    copy_window(dy + at.sequence * s.m, s.N, s.m, at.begin, at.rows + s.W - 1, dz);
    if (y != nullptr) {
      const i64 known = std::min(at.rows + s.W - 1, s.N - at.begin);
      conv1d::mask_gradient(known * s.m, dz, y + at.at() * s.m, dz);
    }
    add_rows(at.rows, s.m, dz, part + count);
    correlate(at.rows, s.m, s.n, s.W, dz, packed.mine(), back.data(), z);
    convert_all(at.rows * s.n, z, dx + at.at() * s.n);

    copy_window(x + at.sequence * s.n, s.N, s.n, at.begin - s.W + 1, at.rows + s.W, window);
    O* memory = packed.mine();
    const Rows16 right(at.rows, s.m, Along::rows, memory);
    right.pack(at.rows, 1, dz, s.m);
    float* to = part;
    for (i64 c = 0; c < copies; ++c) {
      const i64 taps = taps_of(s.W, c), rows = copies * (operands<bf16>(at.rows) + taps - 1);
      const Rows16 left(rows, s.n, Along::rows, memory);
      left.pack(rows, 1, window + c * s.n, s.n);
      tile_product<O>(taps * s.n, s.m, operands<bf16>(at.rows), left.along_rows(0),
                      right.rows_from(0), {to, s.m}, true);
      to += taps * size;
    }
  };
  row_sums<float>(blocks.count, 1, count + s.m, sums.data<float>(), gather);
  const Tensor dweight = Tensor::empty(saved.weight.shape(), DType::f32);
  const float* from = sums.data<float>();
  for (i64 c = 0; c < copies; ++c) {
    for (i64 k = c; k < s.W; k += copies, from += size) {
      std::copy_n(from, size, dweight.data<float>() + k * size);
    }
  }
  return {inner, dweight, sums.slice(0, count, count + s.m)};
}

}  // namespace weft
