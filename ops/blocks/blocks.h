// Blocks of positions: their mean, weighted mean or largest row, and a row that is added to all of
// a block.
//
// The blocks of x [B, N, H, E] have b positions each, from the start; the last one may be short.
// With J_t the positions of block t that lie within the length of the item, per feature:
//
//     block_mean            y_t = (1/|J_t|) Σ_{i ∈ J_t} x_i       dx_i = dy_t / |J_t|
//     block_weighted_mean   y_t = Σ_{i ∈ J_t} a_i x_i             dx_i = a_i dy_t
//                           a = softmax of the logits z over J_t  dz_i = a_i dy_t (x_i − y_t)
//     block_maximum         y_t = max_{i ∈ J_t} x_i               dx_i = dy_t at the first i that
//                                                                 has x_i = y_t, elsewhere 0
//     add_to_blocks         y_i = x_i + r_t,  i ∈ J_t             dx_i = dy_i,  dr_t = Σ_{J_t} dy_i
//
// So the gradient of a mean is broadcast over its block, and that of a broadcast is summed. The
// weighted mean is attention pooling with separate weights for each feature: from
// ∂a_i/∂z_l = a_i (1{i = l} − a_l) follows dz_i = a_i (dy_t x_i − Σ_l a_l dy_t x_l). If J_t is
// empty, y_t is 0. At or beyond the length the gradients of the first three are 0; add_to_blocks
// has y_i = x_i and dx_i = dy_i there. The sums of the mean are accumulated in f64. A NaN counts as
// larger than all numbers: it is propagated to the output.
//
// Saved: for block_maximum the positions, [B, ⌈N/b⌉, H, E] i64; for block_weighted_mean its inputs
// and its result, as handles; for the others nothing.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct BlockMean {
  static constexpr const char* name = "block_mean";
  i64 size;
  Tensor lengths;
  struct Saved {
    Shape shape;
  };
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

struct BlockMaximum {
  static constexpr const char* name = "block_maximum";
  i64 size;
  Tensor lengths;
  struct Saved {
    Shape shape;
    Tensor positions;
  };
  Tensor forward(Saved&, const Tensor& x) const;
  Tensor backward(const Saved&, const Tensor& dy) const;
};

struct BlockWeightedMean {
  static constexpr const char* name = "block_weighted_mean";
  i64 size;
  Tensor lengths;
  struct Saved {
    Tensor x, logits, y;
  };
  Tensor forward(Saved&, const Tensor& x, const Tensor& logits) const;
  std::array<Tensor, 2> backward(const Saved&, const Tensor& dy) const;
};

struct AddToBlocks {
  static constexpr const char* name = "add_to_blocks";
  i64 size;
  Tensor lengths;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x, const Tensor& rows) const;
  std::array<Tensor, 2> backward(const Saved&, Wants, const Tensor& dz) const;
};

// ⌈length / size⌉ of each of the lengths, on their device, without waiting; undefined if they are.
Tensor blocks_within(const Tensor& lengths, i64 size);
// x [B, N, …] with zeros at and beyond the lengths, even where it holds NaN: block_mean in blocks
// of one position. x itself if the lengths are undefined.
Variable within_lengths(const Variable& x, const Tensor& lengths);

// x [B, N, H, E] → [B, ⌈N/size⌉, H, E]; lengths [B] i64 on the device of x, or undefined: all
// positions exist. Throw if x is of another rank, or size is below 1.
Variable block_mean(const Variable& x, i64 size, const Tensor& lengths = {});
Variable block_maximum(const Variable& x, i64 size, const Tensor& lengths = {});
// The logits have the shape of x.
Variable block_weighted_mean(const Variable& x, const Variable& logits, i64 size,
                             const Tensor& lengths = {});
// x [B, N, H, E] and rows [B, ⌈N/size⌉, H, E].
Variable add_to_blocks(const Variable& x, const Variable& rows, i64 size,
                       const Tensor& lengths = {});

}  // namespace weft
