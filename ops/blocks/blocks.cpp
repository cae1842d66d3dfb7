#include "ops/blocks/blocks.h"

#include "ops/blocks/kernels.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "runtime/dispatch.h"

namespace weft {

namespace {

Blocks blocks_of(i64 size, const Shape& x, const Tensor& lengths) {
  return {size, x[1], lengths.defined() ? lengths.data<i64>() : nullptr};
}

// The shape of a tensor with one row for each block of x.
Shape pooled_shape(const char* op, const Tensor& x, i64 size, const Tensor& lengths) {
  require_real(op, x);
  require(x.rank() == 4 && size >= 1,
          "{}: wanted [B, N, H, E] in blocks of at least one position, got {} in blocks of {}", op,
          x.shape(), size);
  require(!lengths.defined() || (lengths.shape() == Shape{x.size(0)} &&
                                 lengths.dtype() == DType::i64 && lengths.contiguous()),
          "{}: lengths must be [{}] of i64, got {} of {}", op, x.size(0), lengths.shape(),
          name_of(lengths.dtype()));
  Shape shape = x.shape();
  shape[1] = (shape[1] + size - 1) / size;
  return shape;
}

// A sum or mean of each block.
Tensor summed(const Tensor& x, const Shape& shape, const Blocks& blocks, bool mean) {
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    BlockKernels<decltype(device), T>::sum(device, blocks, mean, x.view<const T, 4>(),
                                           y.view<T, 4>());
  });
  return y;
}

// x, which may be undefined, plus a row of `rows` for each block.
Tensor spread(const Tensor& x, const Tensor& rows, const Shape& shape, const Blocks& blocks,
              bool mean) {
  const Tensor y = Tensor::empty(shape, rows.dtype(), rows.device());
  dispatch(rows, [&](auto device, auto type) {
    using T = decltype(type);
    BlockKernels<decltype(device), T>::spread(
        device, blocks, mean, x.defined() ? x.view<const T, 4>() : View<const T, 4>{},
        rows.view<const T, 4>(), y.view<T, 4>());
  });
  return y;
}

}  // namespace

Tensor BlockMean::forward(Saved& saved, const Tensor& x) const {
  saved.shape = x.shape();
  const Shape shape = pooled_shape(name, x, size, lengths);
  return summed(x, shape, blocks_of(size, x.shape(), lengths), true);
}

Tensor BlockMean::backward(const Saved& saved, const Tensor& dy) const {
  return spread({}, dy, saved.shape, blocks_of(size, saved.shape, lengths), true);
}

Tensor BlockMaximum::forward(Saved& saved, const Tensor& x) const {
  saved.shape = x.shape();
  const Shape shape = pooled_shape(name, x, size, lengths);
  saved.positions = Tensor::empty(shape, DType::i64, x.device());
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    BlockKernels<decltype(device), T>::maximum(device, blocks_of(size, x.shape(), lengths),
                                               x.view<const T, 4>(), y.view<T, 4>(),
                                               saved.positions.view<i64, 4>());
  });
  return y;
}

Tensor BlockMaximum::backward(const Saved& saved, const Tensor& dy) const {
  const Tensor dx = Tensor::empty(saved.shape, dy.dtype(), dy.device());
  dispatch(dy, [&](auto device, auto type) {
    using T = decltype(type);
    BlockKernels<decltype(device), T>::place(device, blocks_of(size, saved.shape, lengths),
                                             saved.positions.view<const i64, 4>(),
                                             dy.view<const T, 4>(), dx.view<T, 4>());
  });
  return dx;
}

Tensor BlockWeightedMean::forward(Saved& saved, const Tensor& x, const Tensor& logits) const {
  const Shape shape = pooled_shape(name, x, size, lengths);
  require(logits.shape() == x.shape() && logits.dtype() == x.dtype(),
          "{}: wanted logits of the shape and type of x, got {} of {} and {} of {}", name,
          logits.shape(), name_of(logits.dtype()), x.shape(), name_of(x.dtype()));
  saved = {x.packed(), logits.packed(), Tensor::empty(shape, x.dtype(), x.device())};
  dispatch(x, [&](auto device, auto type) {
    using T = decltype(type);
    BlockKernels<decltype(device), T>::weighted_mean(
        device, blocks_of(size, x.shape(), lengths), saved.x.view<const T, 4>(),
        saved.logits.view<const T, 4>(), saved.y.view<T, 4>());
  });
  return saved.y;
}

std::array<Tensor, 2> BlockWeightedMean::backward(const Saved& saved, const Tensor& dy) const {
  const Tensor dx = Tensor::empty_like(saved.x), dlogits = Tensor::empty_like(saved.x);
  const Tensor packed = dy.packed();
  dispatch(dy, [&](auto device, auto type) {
    using T = decltype(type);
    BlockKernels<decltype(device), T>::weighted_mean_backward(
        device, blocks_of(size, saved.x.shape(), lengths), saved.x.view<const T, 4>(),
        saved.logits.view<const T, 4>(), saved.y.view<const T, 4>(), packed.view<const T, 4>(),
        dx.view<T, 4>(), dlogits.view<T, 4>());
  });
  return {dx, dlogits};
}

Tensor AddToBlocks::forward(Saved&, const Tensor& x, const Tensor& rows) const {
  const Shape wanted = pooled_shape(name, x, size, lengths);
  require(rows.shape() == wanted && rows.dtype() == x.dtype(),
          "{}: {} of {} in blocks of {} needs rows {}, got {} of {}", name, x.shape(),
          name_of(x.dtype()), size, wanted, rows.shape(), name_of(rows.dtype()));
  return spread(x, rows, x.shape(), blocks_of(size, x.shape(), lengths), false);
}

std::array<Tensor, 2> AddToBlocks::backward(const Saved&, Wants wants, const Tensor& dz) const {
  const Shape shape = pooled_shape(name, dz, size, lengths);
  const Blocks blocks = blocks_of(size, dz.shape(), lengths);
  return {dz, wants[1] ? summed(dz, shape, blocks, false) : Tensor{}};
}

Tensor blocks_within(const Tensor& lengths, i64 size) {
  if (!lengths.defined()) return {};
  const auto number = [&](i64 x) {
    return Tensor::full({1}, double(x), DType::f64, lengths.device());
  };
  const Variable last = add(lengths.to(DType::f64), number(size - 1));
  return div(last, number(size)).value().to(DType::i64);  // truncates
}

Variable within_lengths(const Variable& x, const Tensor& lengths) {
  if (!lengths.defined()) return x;
  const i64 B = x.size(0), N = x.size(1);
  if (x.value().count() == 0) return x;
  const i64 width = x.value().count() / (B * N);
  return reshape(block_mean(reshape(x, {B, N, 1, width}), 1, lengths), x.shape());
}

Variable block_mean(const Variable& x, i64 size, const Tensor& lengths) {
  return apply(BlockMean{size, lengths}, x);
}

Variable block_maximum(const Variable& x, i64 size, const Tensor& lengths) {
  return apply(BlockMaximum{size, lengths}, x);
}

Variable block_weighted_mean(const Variable& x, const Variable& logits, i64 size,
                             const Tensor& lengths) {
  return apply(BlockWeightedMean{size, lengths}, x, logits);
}

Variable add_to_blocks(const Variable& x, const Variable& rows, i64 size, const Tensor& lengths) {
  return apply(AddToBlocks{size, lengths}, x, rows);
}

}  // namespace weft
