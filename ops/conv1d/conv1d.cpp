#include "ops/conv1d/conv1d.h"

#include "runtime/dispatch.h"
#include "runtime/row_sums.h"
#include "runtime/tile.h"

namespace weft {
namespace {

constexpr std::int64_t block = 128;  // positions of a sequence that are computed at a time

struct Sizes {
  std::int64_t B, N, n, m, W;
};

Sizes sizes_of(const Tensor& x, const Tensor& weight) {
  return {x.size(0), x.size(1), x.size(2), weight.size(2), weight.size(0)};
}

// Rows begin … end−1 of a sequence [N, width], zeros where they lie outside it.
template <class T>
void copy_rows(const T* sequence, std::int64_t N, std::int64_t width, std::int64_t begin,
               std::int64_t end, T* to) {
  for (std::int64_t t = begin; t < end; ++t, to += width) {
    if (t < 0 || t >= N) {
      std::fill(to, to + width, T(0));
    } else {
      std::copy(sequence + t * width, sequence + (t + 1) * width, to);
    }
  }
}

// Cuts every sequence into blocks and numbers them all.
struct Blocks {
  explicit Blocks(const Sizes& s) : N(s.N), each((s.N + block - 1) / block), count(s.B * each) {}
  std::int64_t sequence(std::int64_t i) const { return i / each; }
  std::int64_t begin(std::int64_t i) const { return i % each * block; }
  std::int64_t end(std::int64_t i) const { return std::min(N, begin(i) + block); }
  std::int64_t N, each, count;
};

}  // namespace

template <class T>
void causal_conv1d_values(const Cpu&, const CausalConv1d::Saved& saved, const Tensor& offset,
                          bool relu, const Tensor& result) {
  const Sizes s = sizes_of(saved.x, saved.weight);
  const Blocks blocks(s);
  const T *const x = saved.x.data<T>(), *const weight = saved.weight.data<T>();
  const T* const bias = offset.data<T>();
  T* const y = result.data<T>();
  parallel_for(blocks.count, [&](std::int64_t i) {
    thread_local std::vector<T> window;
    const std::int64_t begin = blocks.begin(i), rows = blocks.end(i) - begin;
    window.resize(static_cast<std::size_t>((rows + s.W - 1) * s.n));
    copy_rows(x + blocks.sequence(i) * s.N * s.n, s.N, s.n, begin - s.W + 1, begin + rows,
              window.data());
    T* const to = y + (blocks.sequence(i) * s.N + begin) * s.m;
    for (std::int64_t t = 0; t < rows; ++t) std::copy(bias, bias + s.m, to + t * s.m);
    tile_product<T>(rows, s.m, s.W * s.n, {window.data(), s.n, 1}, {weight, s.m}, {to, s.m}, true);
    for (std::int64_t j = 0; relu && j < rows * s.m; ++j) to[j] = to[j] < 0 ? T(0) : to[j];
  });
}

namespace {

// back[j, o, i] = W_{W−1−j}[i, o]: the weights of the product that gives dx.
template <class T>
std::vector<T> turned(const Sizes& s, const T* weight) {
  std::vector<T> back(static_cast<std::size_t>(s.W * s.n * s.m));
  for (std::int64_t j = 0; j < s.W; ++j) {
    for (std::int64_t i = 0; i < s.n; ++i) {
      for (std::int64_t o = 0; o < s.m; ++o) {
        back[static_cast<std::size_t>((j * s.m + o) * s.n + i)] =
            weight[((s.W - 1 - j) * s.n + i) * s.m + o];
      }
    }
  }
  return back;
}

}  // namespace

template <class T>
std::array<Tensor, 3> causal_conv1d_gradients(const Cpu&, const CausalConv1d::Saved& saved,
                                              const Tensor& gradient) {
  const Sizes s = sizes_of(saved.x, saved.weight);
  const Blocks blocks(s);
  const T *const x = saved.x.data<T>(), *const dy = gradient.data<T>();
  const T* const y = saved.y.defined() ? saved.y.data<T>() : nullptr;
  const Tensor inner = Tensor::empty_like(saved.x);
  T* const dx = inner.data<T>();
  const std::vector<T> back = turned<T>(s, saved.weight.data<T>());
  const std::int64_t depth = s.W * s.n, count = depth * s.m;
  const Tensor sums = Tensor::empty({count + s.m}, dtype_of<T>);  // dW and, behind it, db
  row_sums<T>(blocks.count, 1, count + s.m, sums.data<T>(), [&](std::int64_t i, std::int64_t, T* part) {
    if (blocks.count == 0) return;
    thread_local std::vector<T> ahead, window;
    const std::int64_t begin = blocks.begin(i), rows = blocks.end(i) - begin;
    const std::int64_t sequence = blocks.sequence(i) * s.N;
    ahead.resize(static_cast<std::size_t>((rows + s.W - 1) * s.m));
    copy_rows(dy + sequence * s.m, s.N, s.m, begin, begin + rows + s.W - 1, ahead.data());
    const std::int64_t known = std::min(rows + s.W - 1, s.N - begin) * s.m;
    for (std::int64_t j = 0; y != nullptr && j < known; ++j) {
      if (!(y[(sequence + begin) * s.m + j] > 0)) ahead[static_cast<std::size_t>(j)] = 0;
    }
    tile_product<T>(rows, s.n, s.W * s.m, {ahead.data(), s.m, 1}, {back.data(), s.n},
                    {dx + (sequence + begin) * s.n, s.n}, false);
    window.resize(static_cast<std::size_t>((rows + s.W - 1) * s.n));
    copy_rows(x + sequence * s.n, s.N, s.n, begin - s.W + 1, begin + rows, window.data());
    tile_product<T>(depth, s.m, rows, {window.data(), 1, s.n}, {ahead.data(), s.m}, {part, s.m},
                    true);
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t o = 0; o < s.m; ++o) {
        part[count + o] += ahead[static_cast<std::size_t>(t * s.m + o)];
      }
    }
  });
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
