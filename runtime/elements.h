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

// All of these kernels for one device, by the file that defines them.
#define WEFT_COPY_ELEMENTS(Device, To, From) \
  template void copy_elements(const Device&, const ElementLoops&, const From*, To*);
#define WEFT_ELEMENTS_OF(Device, T)                    \
  WEFT_COPY_ELEMENTS(Device, T, float)                 \
  WEFT_COPY_ELEMENTS(Device, T, double)                \
  WEFT_COPY_ELEMENTS(Device, T, bf16)                  \
  WEFT_COPY_ELEMENTS(Device, T, std::int32_t)          \
  WEFT_COPY_ELEMENTS(Device, T, std::int64_t)          \
  WEFT_COPY_ELEMENTS(Device, T, std::uint8_t)          \
  template void fill_elements(const Device&, const ElementLoops&, T, T*);
#define WEFT_ELEMENT_KERNELS(Device)                                                     \
  WEFT_ELEMENTS_OF(Device, float)                                                        \
  WEFT_ELEMENTS_OF(Device, double)                                                       \
  WEFT_ELEMENTS_OF(Device, bf16)                                                         \
  WEFT_ELEMENTS_OF(Device, std::int32_t)                                                 \
  WEFT_ELEMENTS_OF(Device, std::int64_t)                                                 \
  WEFT_ELEMENTS_OF(Device, std::uint8_t)                                                 \
  template void add_elements(const Device&, std::int64_t, const float*, const float*, float*); \
  template void add_elements(const Device&, std::int64_t, const double*, const double*, double*); \
  template void add_elements(const Device&, std::int64_t, const bf16*, const bf16*, bf16*);

}  // namespace weft
