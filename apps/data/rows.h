// Examples of a batch that follow each other.
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

// Those that this process reads: ranks have equal shares, one behind the other.
inline Rows own_rows(i64 batch) {
  const i64 count = batch / ranks().size();
  return {ranks().rank() * count, count};
}

}  // namespace weft
