// Kernels over the elements of tensors, for copies, conversions, fills and sums.
#pragma once

#include <cstddef>

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/types.h"

namespace weft {

// Two tensors of one shape; strides in elements, the last axis is the innermost.
struct ElementLoops {
  static constexpr int most = 8;
  int rank = 0;
  i64 count = 0;
  i64 size[most] = {}, to[most] = {}, from[most] = {};
};

// Calls f(T{}) for the element type.
template <class F>
decltype(auto) with_type(DType type, const F& f) {
  switch (type) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::bf16:
      return f(bf16{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::i64:
      return f(i64{});
    case DType::u8:
      break;
  }
  return f(std::uint8_t{});
}

template <class Device, class To>
struct ElementKernels {
  // From elements of type `from_type`.
  static void copy(const Device&, const ElementLoops&, DType from_type, const void* from, To* to);
  static void fill(const Device&, const ElementLoops&, To value, To* to);
};

template <class Device, class T>
struct AddKernels {
  // c = a + b, all contiguous.
  static void add(const Device&, i64 count, const T* a, const T* b, T* c);
};

// Between the host and this device, or on it; what is copied to the host has arrived on return.
void copy_bytes(const Cpu&, const std::byte* from, std::byte* to, std::size_t bytes);
void copy_bytes(const Cuda&, const std::byte* from, std::byte* to, std::size_t bytes);

}  // namespace weft
