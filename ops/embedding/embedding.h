// Embedding: rows of a table, by number.
//
//     y[p, :] = table[ids[p], :]          dtable[v, :] = Σ_{p: ids[p] = v} dy[p, :]
//
// table [V, d], ids [..] i64 or i32, y [.., d]. Each row of dtable is summed over its positions in
// order, in f64: on the CPU by one thread, so that there are no conflicting writes and the bits are
// always the same. On CUDA devices the positions are sorted by id (stable), and the sorted list is
// split into tiles of 64; a row that spans several tiles is the sum of theirs, in order.
//
// Saved: the ids, and the shape of the table.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Embedding {
  static constexpr const char* name = "embedding";
  static constexpr bool takes_bf16 = true;
  struct Saved {
    Tensor ids;  // i64
    Shape shape;
  };
  Tensor forward(Saved&, const Tensor& table, const Tensor& ids) const;
  std::array<Tensor, 2> backward(const Saved&, const Tensor& dy) const;
};

// Throws, with the position and the id, if an id is not in 0 … V − 1. On a CUDA device, where the
// host does not wait for the ids, such an id gives a row of NaN instead, and no gradient.
Variable embedding(const Variable& table, const Tensor& ids);

}  // namespace weft
