// Scratch memory of a kernel, from the counting allocator.
#pragma once

#include <algorithm>
#include <utility>

#include "runtime/parallel.h"
#include "runtime/tensor.h"
#include "runtime/types.h"

namespace weft {

template <class T>
class Scratch {
 public:
  explicit Scratch(i64 count) : tensor_(Tensor::empty({count}, dtype_of<T>)) {}
  T* data() const { return tensor_.template data<T>(); }

 private:
  Tensor tensor_;
};

// Scratch of `count` elements for each thread of a parallel loop of `calls` calls, allocated before
// it.
template <class T>
class ThreadScratch {
 public:
  ThreadScratch(i64 calls, i64 count)
      : slice_((count + line - 1) / line * line),
        buffer_(std::min<i64>(threads(), calls) * slice_) {}
  T* mine() const { return buffer_.data() + numbers_.mine() * slice_; }

 private:
  static constexpr i64 line = 64 / sizeof(T);  // threads do not share cache lines
  i64 slice_;
  Scratch<T> buffer_;
  ThreadNumbers numbers_;
};

// One allocation, split into arrays.
template <class T>
class Pieces {
 public:
  explicit Pieces(i64 count) : buffer_(count), next_(buffer_.data()) {}
  T* take(i64 count) { return std::exchange(next_, next_ + count); }
  T* copy(const T* from, i64 count) {
    T* const to = take(count);
    std::copy(from, from + count, to);
    return to;
  }

 private:
  Scratch<T> buffer_;
  T* next_;
};

}  // namespace weft
