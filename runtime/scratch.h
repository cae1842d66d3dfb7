// Scratch memory of a kernel, from the counting allocator.
#pragma once

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

}  // namespace weft
