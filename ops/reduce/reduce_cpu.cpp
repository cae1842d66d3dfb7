#include <algorithm>

#include "ops/reduce/kernels.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/simd.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 15;  // elements that one task adds
constexpr i64 strip = 2048;     // columns whose f64 sums stay in the L1 cache

// The two steps of a sum: sums over blocks of i, then the sum of those.
struct Blocks : SumSizes {
  i64 block() const {  // of i
    return inner == 1 ? grain : std::max<i64>(64, grain / std::min(inner, strip));
  }
  i64 blocks() const { return std::max<i64>(1, (n + block() - 1) / block()); }
};

// Calls f(row, j, width) in parallel for every strip of columns j … j + width − 1 of every row;
// `work` is the number of elements that a strip adds.
template <class F>
void each_strip(i64 rows, i64 inner, i64 work, const F& f) {
  const i64 strips = (inner + strip - 1) / strip;
  const i64 together = std::max<i64>(1, grain / std::max<i64>(1, work));
  parallel_ranges(rows * strips, together, [&](i64 begin, i64 end) {
    for (i64 piece = begin; piece < end; ++piece) {
      const i64 j = piece % strips * strip;
      f(piece / strips, j, std::min(strip, inner - j));
    }
  });
}

// partial[o, k, j] = Σ_{i in block k} x[o, i, j]
template <class S>
void sum_blocks(const Blocks& sizes, const S* x, double* partial) {
  const i64 n = sizes.n, inner = sizes.inner;
  const i64 block = sizes.block(), blocks = sizes.blocks();
  const auto sum_strip = [=](i64 row, i64 j, i64 width) {
    const i64 begin = row % blocks * block, end = std::min(n, begin + block);
    const S* from = x + (row / blocks * n + begin) * inner + j;
    double* const sums = partial + row * inner + j;
    if (inner == 1) {
      *sums = simd::sum_in_f64(from, end - begin);
      return;
    }
    std::fill(sums, sums + width, 0.0);
    i64 i = begin;
    for (; i + 4 <= end; i += 4, from += 4 * inner) {  // four rows for one pass over the sums
      const S *const x1 = from + inner, *const x2 = x1 + inner, *const x3 = x2 + inner;
      for (i64 l = 0; l < width; ++l) {
        sums[l] += (convert<double>(from[l]) + convert<double>(x1[l])) +
                   (convert<double>(x2[l]) + convert<double>(x3[l]));
      }
    }
    for (; i < end; ++i, from += inner) {
      for (i64 l = 0; l < width; ++l) sums[l] += convert<double>(from[l]);
    }
  };
  each_strip(sizes.outer * blocks, inner, std::min(n, block) * std::min(inner, strip), sum_strip);
}

// s[o, j] = Σ_k partial[o, k, j]; overwrites block 0.
template <class S>
void sum_partials(const Blocks& sizes, double* partial, S* s) {
  const i64 inner = sizes.inner, blocks = sizes.blocks();
  const auto sum_strip = [=](i64 o, i64 j, i64 width) {
    double* const sums = partial + o * blocks * inner + j;
    for (i64 k = 1; k < blocks; ++k) {
      for (i64 l = 0; l < width; ++l) sums[l] += sums[k * inner + l];
    }
    S* const to = s + o * inner + j;
    for (i64 l = 0; l < width; ++l) to[l] = convert<S>(sums[l]);
  };
  each_strip(sizes.outer, inner, blocks * std::min(inner, strip), sum_strip);
}

}  // namespace

template <class Device, class S>
void SumKernels<Device, S>::sum(const Device&, const SumSizes& sizes, const S* x, S* s) {
  const Blocks blocks{sizes};
  const Scratch<double> partial(sizes.outer * blocks.blocks() * sizes.inner);
  sum_blocks(blocks, x, partial.data());
  sum_partials(blocks, partial.data(), s);
}

template struct SumKernels<Cpu, float>;
template struct SumKernels<Cpu, double>;
template struct SumKernels<Cpu, bf16>;

}  // namespace weft
