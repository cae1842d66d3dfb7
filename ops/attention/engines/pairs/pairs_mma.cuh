// What the kernels of the engine for pairs on tensor cores share: tiles that arrive while others
// are multiplied, and heads that these kernels do not take. For .cu files.
#pragma once

#include "ops/attention/engines/pairs/pairs_tile.cuh"
#include "ops/attention/mma_tile.cuh"
#include "runtime/cuda/workspace.h"

namespace weft {

// Exponentials are powers of two.
inline constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

// A tile of the walk whose rows are in, or on their way to, one of two stages of shared memory.
struct StagedTile {
  i64 first = 0;
  int count = 0;
  bool whole = true;

  template <class T>
  __device__ explicit StagedTile(const TileWalk<T>& walk)
      : first(walk.first), count(walk.count), whole(walk.whole) {}
};

// to = from, element by element, in another type.
template <class From, class To>
struct ConvertElements {
  View<const From, 4> from;
  View<To, 4> to;

  __device__ void operator()(i64 place) const {
    i64 index[4];
    for (int axis = 3; axis >= 0; --axis) {
      index[axis] = place % to.size(axis);
      place /= to.size(axis);
    }
    to(index[0], index[1], index[2], index[3]) =
        convert<To>(from(index[0], index[1], index[2], index[3]));
  }
};

template <class From, class To>
void convert_elements(const Cuda& device, const View<const From, 4>& from, const View<To, 4>& to) {
  const i64 count = to.size(0) * to.size(1) * to.size(2) * to.size(3);
  for_elements("pairs", device, count, ConvertElements<From, To>{from, to});
}

// A copy in f32, and back. What is only written is not `read`.
class Widened {
 public:
  Widened(const Cuda& device, const View<const bf16, 4>& x, bool read = true)
      : device_(device), space_(device, x.size(0) * x.size(1) * x.size(2) * x.size(3)) {
    copy_ = space_.view(x.size(0), x.size(1), x.size(2), x.size(3));
    if (read) convert_elements<bf16, float>(device, x, copy_);
  }

  const View<float, 4>& view() const { return copy_; }
  void narrow_to(const View<bf16, 4>& x) const { convert_elements<float, bf16>(device_, copy_, x); }

 private:
  const Cuda& device_;
  Workspace<float> space_;
  View<float, 4> copy_;
};

// The inputs of a problem in f32.
struct WidenedPairs {
  Widened q, k, v;

  WidenedPairs(const Cuda& device, const Pairs<bf16>& p)
      : q(device, p.q), k(device, p.k), v(device, p.v) {}

  Pairs<float> problem(const Pairs<bf16>& p) const {
    return {.q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .bias = p.bias,
            .lengths = p.lengths,
            .query_lengths = p.query_lengths,
            .temperature = p.temperature,
            .band = p.band,
            .lists = p.lists,
            .classes = p.classes,
            .first_key = p.first_key,
            .dropout = p.dropout,
            .random = p.random,
            .first_column = p.first_column,
            .columns = p.columns};
  }
};

}  // namespace weft
