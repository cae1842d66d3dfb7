// Scratch memory of a kernel, from the counting allocator.
#pragma once

#include <algorithm>
#include <utility>

#include "runtime/tensor.h"

namespace weft {

template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t count) : tensor_(Tensor::empty({count}, dtype_of<T>)) {}
  T* data() const { return tensor_.template data<T>(); }

 private:
  Tensor tensor_;
};

// One allocation, handed out in parts.
template <class T>
class Pieces {
 public:
  explicit Pieces(std::int64_t count) : buffer_(count), next_(buffer_.data()) {}
  T* take(std::int64_t count) { return std::exchange(next_, next_ + count); }
  T* copy(const T* from, std::int64_t count) {
    T* const to = take(count);
    std::copy(from, from + count, to);
    return to;
  }

 private:
  Scratch<T> buffer_;
  T* next_;
};

}  // namespace weft
