// The blocks of positions that the CPU kernels of causal_conv1d compute together.
#pragma once

#include <algorithm>

#include "runtime/pack.h"
#include "runtime/tensor.h"

namespace weft::conv1d {

inline constexpr i64 block = 128;  // positions of a sequence that are computed together

struct Sizes {
  i64 B, N, n, m, W;
};

inline Sizes sizes_of(const Tensor& x, const Tensor& weight) {
  return {x.size(0), x.size(1), x.size(2), weight.size(2), weight.size(0)};
}

// to = dz where y > 0, else 0: the gradient of z, with relu.
template <class S>
void mask_gradient(i64 count, const S* dz, const S* y, S* to) {
  using P = Pack<Accumulator<S>>;
  map(
      count, to, [](auto g, auto value) { return where(P(0) < value, g, P(0)); }, dz, y);
}

// Splits every sequence into blocks and numbers them all.
struct Blocks {
  explicit Blocks(const Sizes& s) : N(s.N), each((s.N + block - 1) / block), count(s.B * each) {}
  i64 N, each, count;
};

// One of them: rows begin … begin + rows − 1 of a sequence; `sequence` is the number of its first
// row.
struct Block {
  Block(const Blocks& blocks, i64 i)
      : sequence(i / blocks.each * blocks.N),
        begin(i % blocks.each * block),
        rows(std::min(blocks.N - begin, block)) {}
  i64 at() const { return sequence + begin; }
  i64 sequence, begin, rows;
};

}  // namespace weft::conv1d
