// Embedding: rows of a table, by number.
//
//     y[p, :] = table[ids[p], :]          dtable[v, :] = Σ_{p: ids[p] = v} dy[p, :]
//
// table [V, d], ids [..] i64 or i32, y [.., d]. Each row of dtable is summed over its positions in
// order, in f64: on the CPU by one thread, so that no two writes meet and the bits are always the
// same. On CUDA devices the positions are sorted by id, in order among equals, and the sorted list is
// cut into tiles of 64; a row that lies in several tiles is the sum of theirs, in order.
//
// Saved: the ids, and the shape of the table.
#pragma once

#include "autograd/apply.h"

namespace weft {

struct Embedding {
  static constexpr const char* name = "embedding";
  struct Saved {
    Tensor ids;  // i64
    Shape shape;
  };
  Tensor forward(Saved&, const Tensor& table, const Tensor& ids) const;
  std::array<Tensor, 2> backward(const Saved&, const Tensor& dy) const;
};

// Throws, with the position and the id, where an id is not in 0 … V − 1. On a CUDA device, whose
// memory the host does not wait for, such an id gives a row of NaN instead, and no gradient.
Variable embedding(const Variable& table, const Tensor& ids);

}  // namespace weft
