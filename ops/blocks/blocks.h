// Blocks of positions: their mean or largest row, and a row that is added to all of a block.
//
// The blocks of x [B, N, H, E] have b positions each, from the start; the last one may be short.
// With J_t the positions of block t that lie within the length of the item, per feature:
//
//     block_mean       y_t = (1/|J_t|) Σ_{i ∈ J_t} x_i      dx_i = dy_t / |J_t|
//     block_maximum    y_t = max_{i ∈ J_t} x_i              dx_i = dy_t [i is the first that has
//     y_t] add_to_blocks    z_i = x_i + r_t,  i ∈ J_t            dx_i = dz_i,   dr_t = Σ_{i ∈ J_t}
//     dz_i
//
// So the gradient of a mean is spread over its block, and that of what is spread is summed. Where
// J_t is empty y_t is 0; dx_i is 0, and z_i is x_i, for a position at or past the length. Sums are
// gathered in f64. A NaN is larger than all numbers: it goes on to the output.
//
// Saved: of block_maximum the positions, [B, ⌈N/b⌉, H, E] i64; of the others nothing.
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

struct AddToBlocks {
  static constexpr const char* name = "add_to_blocks";
  i64 size;
  Tensor lengths;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x, const Tensor& rows) const;
  std::array<Tensor, 2> backward(const Saved&, Wants, const Tensor& dz) const;
};

// x [B, N, H, E] → [B, ⌈N/size⌉, H, E]; lengths [B] i64 on the device of x, or undefined: all
// positions exist. Throw where x is of another rank, or size is below 1.
Variable block_mean(const Variable& x, i64 size, const Tensor& lengths = {});
Variable block_maximum(const Variable& x, i64 size, const Tensor& lengths = {});
// x [B, N, H, E] and rows [B, ⌈N/size⌉, H, E].
Variable add_to_blocks(const Variable& x, const Variable& rows, i64 size,
                       const Tensor& lengths = {});

}  // namespace weft
