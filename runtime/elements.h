// Kernels over the elements of tensors: what copies, conversions, fills and sums are made of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/device.h"
#include "runtime/dtype.h"

namespace weft {

// Two tensors of one shape; strides in elements, the last axis is the innermost.
struct ElementLoops {
  static constexpr int most = 8;
  int rank = 0;
  std::int64_t count = 0;
  std::int64_t size[most] = {}, to[most] = {}, from[most] = {};
};

template <class To, class From>
void copy_elements(const Cpu&, const ElementLoops&, const From* from, To* to);
template <class To, class From>
void copy_elements(const Cuda&, const ElementLoops&, const From* from, To* to);

template <class T>
void fill_elements(const Cpu&, const ElementLoops&, T value, T* to);
template <class T>
void fill_elements(const Cuda&, const ElementLoops&, T value, T* to);

// c = a + b, elements side by side.
template <class T>
void add_elements(const Cpu&, std::int64_t count, const T* a, const T* b, T* c);
template <class T>
void add_elements(const Cuda&, std::int64_t count, const T* a, const T* b, T* c);

// Between the host and this device, or on it; what comes to the host is there on return.
void copy_bytes(const Cpu&, const std::byte* from, std::byte* to, std::size_t bytes);
void copy_bytes(const Cuda&, const std::byte* from, std::byte* to, std::size_t bytes);

}  // namespace weft
