// The engine for pairs where queries, keys and values have at most 16 columns: what pairs.cu and
// pairs_backward.cu launch then, of pairs_narrow.cu. For .cu files.
#pragma once

#include "ops/attention/engines/pairs/pairs_tile.cuh"

namespace weft {

template <class Device, class T>
struct NarrowPairsKernels {
  static constexpr i64 widest = 16;
  static bool fits(const Pairs<T>& p) { return p.E() <= widest && p.M() <= widest; }

  static void forward(const Device&, const Pairs<T>&, View<const T, 3> before, View<T, 4> out,
                      View<T, 3> log_sums);
  static void key_gradients(const Device&, const Pairs<T>&, const QuerySide<T>&, bool add,
                            View<T, 4> dk, View<T, 4> dv);
  static void query_gradients(const Device&, const Pairs<T>&, const QuerySide<T>&, bool add,
                              View<T, 4> dq);
};

}  // namespace weft
