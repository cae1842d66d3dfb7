// Random orders of examples.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "runtime/random.h"
#include "runtime/types.h"

namespace weft {

// A uniformly random permutation of 0 … count − 1, a function of `key` (R. A. Fisher, F. Yates
// 1938).
inline std::vector<i64> shuffled(i64 count, const RandomKey& key) {
  std::vector<i64> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    const std::uint32_t j = below(key.words(i).word[0], static_cast<std::uint32_t>(i));
    std::swap(order[i - 1], order[j]);
  }
  return order;
}

// The training batches, as indices of examples. Each epoch has another order, a function of seed
// and epoch, and drops its last, partial batch.
class EpochOrder {
 public:
  // `stream` separates these random numbers from others of the seed.
  EpochOrder(i64 count, i64 batch, std::uint64_t seed, std::uint32_t stream)
      : count_(count), batch_(batch), seed_(seed), stream_(stream) {}

  i64 steps() const { return count_ / batch_; }  // per epoch
  // The epoch of a step. Both count from 1.
  std::uint32_t epoch(std::uint32_t step) const {
    return (step - 1) / static_cast<std::uint32_t>(steps()) + 1;
  }
  // The batch of a step. Valid until a call for a step of another epoch.
  std::span<const i64> operator()(std::uint32_t step) {
    if (epoch(step) != epoch_) {
      epoch_ = epoch(step);
      order_ = shuffled(count_, {seed_, epoch_, stream_});
    }
    const auto batch = static_cast<std::size_t>(batch_);
    return std::span<const i64>(order_).subspan(
        (step - 1) % static_cast<std::uint32_t>(steps()) * batch, batch);
  }

 private:
  i64 count_, batch_;
  std::uint64_t seed_;
  std::uint32_t stream_;
  std::uint32_t epoch_ = 0;  // the epoch of `order_`
  std::vector<i64> order_;
};

}  // namespace weft
