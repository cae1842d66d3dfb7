// CUDA kernel of normals.h: a thread draws one number, with its own block of words. Bound by f64
// arithmetic, some 100 operations a number; few numbers are drawn.
#include "ops/normals/normals.h"
#include "runtime/cuda/loops.h"

namespace weft {
namespace {

template <class T>
struct NormalElement {
  RandomKey key;
  i64 each, first;
  T* to;
  __device__ void operator()(i64 i) const {
    to[i] = static_cast<T>(normal_number(key, each, first + i));
  }
};

}  // namespace

template <class Device, class T>
void NormalsKernels<Device, T>::draw(const Device& device, const RandomKey& key, i64 each,
                                     i64 first, i64 count, T* to) {
  for_elements("normals", device, count, NormalElement<T>{key, each, first, to});
}

template struct NormalsKernels<Cuda, float>;
template struct NormalsKernels<Cuda, double>;

}  // namespace weft
