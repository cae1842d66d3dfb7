#include "ops/blocks/blocks.h"

#include "ops/blocks/kernels.h"
#include "runtime/dispatch.h"

namespace weft {

namespace {

Blocks blocks_of(i64 size, const Shape& x, const Tensor& lengths) {
  return {size, x[1], lengths.defined() ? lengths.data<i64>() : nullptr};
}

// The shape of a row for each block of x.
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

// x, which may be undefined, with a row of `rows` added to each block.
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

Tensor AddToBlocks::forward(Saved&, const Tensor& x, const Tensor& rows) const {
  const Shape wanted = pooled_shape(name, x, size, lengths);
  require(rows.shape() == wanted && rows.dtype() == x.dtype(),
          "{}: {} of {} in blocks of {} wants rows {}, got {} of {}", name, x.shape(),
          name_of(x.dtype()), size, wanted, rows.shape(), name_of(rows.dtype()));
  return spread(x, rows, x.shape(), blocks_of(size, x.shape(), lengths), false);
}

std::array<Tensor, 2> AddToBlocks::backward(const Saved&, Wants wants, const Tensor& dz) const {
  const Shape shape = pooled_shape(name, dz, size, lengths);
  const Blocks blocks = blocks_of(size, dz.shape(), lengths);
  return {dz, wants[1] ? summed(dz, shape, blocks, false) : Tensor{}};
}

Variable block_mean(const Variable& x, i64 size, const Tensor& lengths) {
  return apply(BlockMean{size, lengths}, x);
}

Variable block_maximum(const Variable& x, i64 size, const Tensor& lengths) {
  return apply(BlockMaximum{size, lengths}, x);
}

Variable add_to_blocks(const Variable& x, const Variable& rows, i64 size, const Tensor& lengths) {
  return apply(AddToBlocks{size, lengths}, x, rows);
}

}  // namespace weft
