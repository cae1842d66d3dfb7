// From run-time tags to types: dispatch(tensor, f) calls f(device, T{}), where device is a Cpu or a
// Cuda and T the element type. The kernels of an op are members of a struct over that pair; one
// that is declared and not defined is a link error. An op that declares its kernels for Cpu alone
// compiles in every build, and refuses tensors on a CUDA device when it is called.
#pragma once

#include "runtime/tensor.h"

#if WEFT_GPU
#include "runtime/cuda/device.h"
#endif

namespace weft {

inline constexpr bool has_cuda = WEFT_GPU;  // whether this build has kernels for CUDA devices

template <class F>
decltype(auto) dispatch_device(Device device, const F& f) {
#if WEFT_GPU
  if (device.type == DeviceType::cuda) return f(Cuda{device.index});
#endif
  require(device.type == DeviceType::cpu, "this build computes on the CPU only; configure with "
          "-Dgpu=cuda or -Dgpu=emulated for {}", name_of(device.type));
  return f(Cpu{});
}

// Throws, naming the op, unless x has an element type that differentiable ops accept.
inline void require_real(const char* op, const Tensor& x) {
  require(is_floating(x.dtype()), "{}: wanted f32, f64 or bf16 elements, got {} {}", op,
          name_of(x.dtype()), x.shape());
}

// Over the types that differentiable ops compute in.
template <class F>
decltype(auto) dispatch(const Tensor& tensor, const F& f) {
  return dispatch_device(tensor.device(), [&](auto device) -> decltype(auto) {
    require(tensor.dtype() == DType::f32 || tensor.dtype() == DType::f64,
            "wanted f32 or f64 elements, got {} {}", name_of(tensor.dtype()), tensor.shape());
    if (tensor.dtype() == DType::f32) return f(device, float{});
    return f(device, double{});
  });
}

// Over the types of values and their gradients: those above, and bf16.
template <class F>
decltype(auto) dispatch_floating(const Tensor& tensor, const F& f) {
  return dispatch_device(tensor.device(), [&](auto device) -> decltype(auto) {
    switch (tensor.dtype()) {
      case DType::f32: return f(device, float{});
      case DType::f64: return f(device, double{});
      case DType::bf16: return f(device, bf16{});
      default: fail("wanted f32, f64 or bf16 elements, got {} {}", name_of(tensor.dtype()),
                    tensor.shape());
    }
  });
}

}  // namespace weft
