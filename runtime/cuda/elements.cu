// CUDA kernels over the elements of tensors. Thread t of the grid has the elements t, t + threads,
// ….
//
// A copy in f32 moves 8 bytes an element, a fill 4, a sum 12; what lies side by side in both
// tensors is copied as bytes (a thread an element moves bytes at 0.87 TB/s on an H200). Each axis
// but the first costs a 64-bit division, some 70 instructions: with none the kernel is bound by
// memory bandwidth, with two or more by the rate of integer instructions.
#include "runtime/elements.h"

#include "runtime/cuda/stream.h"

namespace weft {
namespace {

constexpr unsigned threads = 256;

__device__ inline i64 first_element() { return i64{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline i64 next_element() { return i64{gridDim.x} * blockDim.x; }

template <class To, class From>
__global__ void copy_kernel(ElementLoops loops, const From* from, To* to) {
  for (i64 i = first_element(); i < loops.count; i += next_element()) {
    i64 rest = i, target = 0, source = 0;
    for (int axis = loops.rank - 1; axis > 0; --axis) {
      const i64 index = rest % loops.size[axis];
      rest /= loops.size[axis];
      target += index * loops.to[axis];
      source += index * loops.from[axis];
    }
    to[target + rest * loops.to[0]] = convert<To>(from[source + rest * loops.from[0]]);
  }
}

template <class T>
__global__ void fill_kernel(ElementLoops loops, T value, T* to) {
  for (i64 i = first_element(); i < loops.count; i += next_element()) {
    i64 rest = i, target = 0;
    for (int axis = loops.rank - 1; axis > 0; --axis) {
      target += rest % loops.size[axis] * loops.to[axis];
      rest /= loops.size[axis];
    }
    to[target + rest * loops.to[0]] = value;
  }
}

template <class T>
__global__ void add_kernel(i64 count, const T* a, const T* b, T* c) {
  for (i64 i = first_element(); i < count; i += next_element()) c[i] = a[i] + b[i];
}

}  // namespace

template <class Device, class To>
void ElementKernels<Device, To>::copy(const Device& device, const ElementLoops& loops,
                                      DType from_type, const void* from, To* to) {
  if (loops.count == 0) return;
  const bool packed =
      loops.rank == 0 || (loops.rank == 1 && loops.to[0] == 1 && loops.from[0] == 1);
  with_type(from_type, [&]<class From>(From) {
    if (std::is_same_v<To, From> && packed) {
      const auto bytes = static_cast<std::size_t>(loops.count) * sizeof(To);
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(device)),
                 "copy");
      return;
    }
    start("copy", device, blocks_for(device, loops.count, threads), threads, 0,
          copy_kernel<To, From>, loops, static_cast<const From*>(from), to);
  });
}

template <class Device, class To>
void ElementKernels<Device, To>::fill(const Device& device, const ElementLoops& loops, To value,
                                      To* to) {
  if (loops.count == 0) return;
  start("fill", device, blocks_for(device, loops.count, threads), threads, 0, fill_kernel<To>,
        loops, value, to);
}

template <class Device, class T>
void AddKernels<Device, T>::add(const Device& device, i64 count, const T* a, const T* b, T* c) {
  if (count == 0) return;
  start("add", device, blocks_for(device, count, threads), threads, 0, add_kernel<T>, count, a, b,
        c);
}

template struct ElementKernels<Cuda, float>;
template struct ElementKernels<Cuda, double>;
template struct ElementKernels<Cuda, bf16>;
template struct ElementKernels<Cuda, std::int32_t>;
template struct ElementKernels<Cuda, i64>;
template struct ElementKernels<Cuda, std::uint8_t>;
template struct AddKernels<Cuda, float>;
template struct AddKernels<Cuda, double>;
template struct AddKernels<Cuda, bf16>;

}  // namespace weft
