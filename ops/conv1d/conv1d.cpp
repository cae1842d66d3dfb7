#include "ops/conv1d/conv1d.h"

#include <limits>

#include "ops/conv1d/halves.h"
#include "runtime/dispatch.h"
#include "runtime/row_sums.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

constexpr std::int64_t block = 128;  // positions of a sequence that are computed at a time

struct Sizes {
  std::int64_t B, N, n, m, W;
};

Sizes sizes_of(const Tensor& x, const Tensor& weight) {
  return {x.size(0), x.size(1), x.size(2), weight.size(2), weight.size(0)};
}

// How often products are halved: a third time gains nothing, and few positions do not pay for the
// weights' sums.
int halvings(const Sizes& s) {
  if (s.B * s.N < block) return 0;
  return s.W % 4 == 0 ? 2 : s.W % 2 == 0 ? 1 : 0;
}

// Cuts every sequence into blocks and numbers them all.
struct Blocks {
  explicit Blocks(const Sizes& s) : N(s.N), each((s.N + block - 1) / block), count(s.B * each) {}
  std::int64_t N, each, count;
};

// One of them: rows begin … begin + rows − 1 of a sequence that starts at row `sequence` of all.
struct Block {
  Block(const Blocks& blocks, std::int64_t i, int levels)
      : sequence(i / blocks.each * blocks.N),
        begin(i % blocks.each * block),
        rows(std::min(blocks.N - begin, block)),
        padded((rows + (1 << levels) - 1) >> levels << levels) {}
  std::int64_t at() const { return sequence + begin; }
  std::int64_t sequence, begin, rows;
  std::int64_t padded;  // so many are computed, which can be halved
};

// Rows begin … of a sequence [N, width], zeros where they lie outside it, as one sequence `to`.
template <class T>
void copy_rows(const T* sequence, std::int64_t N, std::int64_t width, std::int64_t begin,
               std::int64_t rows, Halves<T>& to) {
  to.start(1, rows, width);
  const std::int64_t first = std::clamp<std::int64_t>(-begin, 0, rows);
  const std::int64_t last = std::clamp(N - begin, first, rows);
  std::fill(to[0], to[0] + first * width, T(0));
  std::copy(sequence + (begin + first) * width, sequence + (begin + last) * width,
            to[0] + first * width);
  std::fill(to[0] + last * width, to[0] + rows * width, T(0));
}

// The taps of a weight [W, ..], `width` numbers each, halved.
template <class T>
Halves<T> halved_taps(const T* weight, const Sizes& s, int levels) {
  Halves<T> taps;
  taps.start(1, s.W, s.n * s.m);
  std::copy(weight, weight + taps.size(), taps[0]);
  for (int level = 0; level < levels; ++level) taps.split_pairs();
  return taps;
}

template <class T>
void split_windows(Halves<T>& windows, int levels) {
  for (int level = 0; level < levels; ++level) windows.split_windows();
}

// y [rows, m] = windows ∗ taps; windows and taps are halved.
template <class T>
void correlate(Halves<T>& windows, Halves<T>& taps, std::int64_t m, int levels, Halves<T>& y) {
  const std::int64_t n = windows.width;
  y.start(windows.count, windows.rows - taps.rows + 1, m);
  for (std::int64_t i = 0; i < windows.count; ++i) {
    tile_product<T>(y.rows, m, taps.rows * n, {windows[i], n, 1}, {taps[i], m}, {y[i], m}, false);
  }
  for (int level = 0; level < levels; ++level) y.merge();
}

}  // namespace

template <class T>
void causal_conv1d_values(const Cpu&, const CausalConv1d::Saved& saved, const Tensor& offset,
                          bool relu, const Tensor& result) {
  const Sizes s = sizes_of(saved.x, saved.weight);
  const Blocks blocks(s);
  const int levels = halvings(s);
  const T *const x = saved.x.data<T>(), *const bias = offset.data<T>();
  T* const y = result.data<T>();
  Halves<T> taps = halved_taps(saved.weight.data<T>(), s, levels);
  parallel_for(blocks.count, [&](std::int64_t i) {
    thread_local Halves<T> windows, z;
    const Block at(blocks, i, levels);
    copy_rows(x + at.sequence * s.n, s.N, s.n, at.begin - s.W + 1, at.padded + s.W - 1, windows);
    split_windows(windows, levels);
    correlate(windows, taps, s.m, levels, z);
    const Pack<T> least(relu ? 0 : -std::numeric_limits<double>::infinity());  // NaN is not less
    for (std::int64_t t = 0; t < at.rows; ++t) {
      map<T>(
          s.m, y + (at.at() + t) * s.m,
          [&](auto sum, auto b) { return where(sum + b < least, least, sum + b); },
          static_cast<const T*>(z[0] + t * s.m), bias);
    }
  });
}

namespace {

// back[j, o, i] = W_{W−1−j}[i, o]: the weights of the product that gives dx.
template <class T>
std::vector<T> turned(const Sizes& s, const T* weight) {
  std::vector<T> back(static_cast<std::size_t>(s.W * s.n * s.m));
  for (std::int64_t j = 0; j < s.W; ++j) {
    transpose<T>(s.n, s.m, {weight + (s.W - 1 - j) * s.n * s.m, s.m},
                 {back.data() + j * s.n * s.m, s.n});
  }
  return back;
}

}  // namespace

template <class T>
std::array<Tensor, 3> causal_conv1d_gradients(const Cpu&, const CausalConv1d::Saved& saved,
                                              const Tensor& gradient) {
  const Sizes s = sizes_of(saved.x, saved.weight);
  const Blocks blocks(s);
  const int levels = halvings(s);
  const T *const x = saved.x.data<T>(), *const dy = gradient.data<T>();
  const T* const y = saved.y.defined() ? saved.y.data<T>() : nullptr;
  const Tensor inner = Tensor::empty_like(saved.x);
  T* const dx = inner.data<T>();
  Halves<T> back = halved_taps(turned<T>(s, saved.weight.data<T>()).data(), s, levels);
  const std::int64_t count = s.W * s.n * s.m;
  const Tensor sums = Tensor::empty({count + s.m}, dtype_of<T>);  // dW and, behind it, db
  const auto gather = [&](std::int64_t first, std::int64_t last, T* part) {
    thread_local Halves<T> dz, ahead, windows, rest, dweight;
    dweight.start(back.count, back.rows, s.n * s.m);
    std::fill(dweight[0], dweight[0] + dweight.size(), T(0));
    for (std::int64_t i = first; i < last; ++i) {
      const Block at(blocks, i, levels);
      const T* const from = dy + at.sequence * s.m;
      copy_rows(from, s.N, s.m, at.begin, at.padded + s.W - 1, ahead);
      if (y != nullptr) {
        const std::int64_t known = std::min(ahead.rows, s.N - at.begin) * s.m;
        map<T>(
            known, ahead[0], [](auto g, auto z) { return where(Pack<T>(0) < z, g, Pack<T>(0)); },
            static_cast<const T*>(ahead[0]), y + at.at() * s.m);
      }
      copy_rows<T>(ahead[0], at.padded, s.m, 0, at.padded, dz);
      for (std::int64_t t = 0; t < at.rows; ++t) {
        simd::add_scaled(T(1), dz[0] + t * s.m, part + count, s.m);
      }
      split_windows(ahead, levels);
      correlate(ahead, back, s.n, levels, rest);
      std::copy(rest[0], rest[0] + at.rows * s.n, dx + at.at() * s.n);

      for (int level = 0; level < levels; ++level) dz.split_pairs();
      copy_rows(x + at.sequence * s.n, s.N, s.n, at.begin - s.W + 1, at.padded + s.W - 1, windows);
      split_windows(windows, levels);
      for (std::int64_t k = 0; k < windows.count; ++k) {
        tile_product<T>(dweight.rows * s.n, s.m, dz.rows, {windows[k], 1, s.n}, {dz[k], s.m},
                        {dweight[k], s.m}, true);
      }
    }
    for (int level = 0; level < levels; ++level) dweight.merge();
    simd::add_scaled(T(1), dweight[0], part, count);
  };
  // As many blocks at a time as a part of the sum has: its dW is merged once.
  const std::int64_t share =
      std::max<std::int64_t>(1, (blocks.count + most_row_parts - 1) / most_row_parts);
  row_sums<T>(blocks.count, share, count + s.m, sums.data<T>(), gather);
  return {inner, sums.slice(0, 0, count).reshape({s.W, s.n, s.m}),
          sums.slice(0, count, count + s.m)};
}

Tensor CausalConv1d::forward(Saved& saved, const Tensor& x, const Tensor& weight,
                             const Tensor& bias) const {
  require(x.rank() == 3 && weight.rank() == 3 && x.size(2) == weight.size(1) && weight.size(0) >= 1 &&
              bias.shape() == Shape{weight.size(2)},
          "causal_conv1d: wanted x [B, N, n], a weight [W, n, m] and a bias [m]; got {}, {} and {}",
          x.shape(), weight.shape(), bias.shape());
  require(x.dtype() == weight.dtype() && x.dtype() == bias.dtype(),
          "causal_conv1d: x is {}, the weight {}, the bias {}", name_of(x.dtype()),
          name_of(weight.dtype()), name_of(bias.dtype()));
  require(activation != Activation::gelu, "causal_conv1d: wanted no activation or relu");
  const bool relu = activation == Activation::relu;
  saved = {x.packed(), weight.packed(), {}};
  const Tensor offset = bias.packed();
  Tensor y = Tensor::empty({x.size(0), x.size(1), weight.size(2)}, x.dtype(), x.device());
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    causal_conv1d_values<T>(device, saved, offset, relu, y);
  });
  if (relu) saved.y = y;
  return y;
}

std::array<Tensor, 3> CausalConv1d::backward(const Saved& saved, const Tensor& dy) const {
  const Tensor gradient = dy.packed();
  return dispatch(dy, [&](auto device, auto type) {
    return causal_conv1d_gradients<decltype(type)>(device, saved, gradient);
  });
}

Variable causal_conv1d(const Variable& x, const Variable& weight, const Variable& bias,
                       Activation activation) {
  return apply(CausalConv1d{activation}, x, weight, bias);
}

}  // namespace weft
