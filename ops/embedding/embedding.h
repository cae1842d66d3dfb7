// Embedding: rows of a table, by number.
//
//     y[p, :] = table[ids[p], :]          dtable[v, :] = Σ_{p: ids[p] = v} dy[p, :]
//
// table [V, d], ids [..] i64 or i32, y [.., d]. Each row of dtable is summed by one thread over its
// positions in order, in f64, so that no two writes meet and the bits are always the same.
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

// Throws, with the position and the id, where an id is not in 0 … V − 1.
Variable embedding(const Variable& table, const Tensor& ids);

}  // namespace weft
