// Consecutive examples of a batch.
#pragma once

#include <span>

#include "runtime/communicator.h"

namespace weft {

struct Rows {
  i64 first = 0, count = 0;

  Rows(i64 all) : count(all) {}
  Rows(i64 first, i64 count) : first(first), count(count) {}

  template <class T>
  std::span<T> of(std::span<T> batch) const {
    return batch.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }
};

// The rows that this rank reads: ranks have equal shares, in their order.
inline Rows own_rows(i64 batch) {
  const i64 count = batch / ranks().size();
  return {ranks().rank() * count, count};
}

}  // namespace weft
