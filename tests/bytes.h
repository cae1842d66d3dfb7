// The memory that a call takes.
#pragma once

#include "runtime/allocator.h"

namespace weft {

// The most bytes that are in use during f() beside those before it, on the CPU.
template <class F>
std::size_t bytes_taken(const F& f) {
  const std::size_t before = allocator().counts().live;
  allocator().reset_peak();
  f();
  return allocator().counts().peak - before;
}

}  // namespace weft
