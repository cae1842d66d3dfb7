// The orders in which the emulated device may run its threads and blocks.
#pragma once

#include <cstdint>

#include "runtime/cuda/emulated/cuda_runtime.h"
#include "tests/check.h"

namespace weft {

// Sets the order for the time of a scope.
struct Ordered {
  explicit Ordered(emulated::Order order, std::uint64_t seed = 1) { set_order(order, seed); }
  ~Ordered() { emulated::set_order(emulated::Order::ascending); }
  Ordered(const Ordered&) = delete;
  Ordered& operator=(const Ordered&) = delete;
};

// Calls f under orders other than the default, ascending one: the reverse, and at random, twice if
// all cases are wanted (`./weft test --all`).
template <class F>
void under_other_orders(const F& f) {
  {
    const Ordered scope(emulated::Order::descending);
    f();
  }
  for (std::uint64_t seed = 1; seed <= (few_on_device() ? 1 : 2); ++seed) {
    const Ordered scope(emulated::Order::random, seed);
    f();
  }
}

}  // namespace weft
