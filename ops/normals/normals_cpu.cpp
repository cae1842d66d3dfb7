#include "ops/normals/normals.h"

namespace weft {

template <class Device, class T>
void NormalsKernels<Device, T>::draw(const Device&, const RandomKey& key, i64 each, i64 first,
                                     i64 count, T* to) {
  for (i64 i = 0; i < count; ++i) to[i] = static_cast<T>(normal_number(key, each, first + i));
}

template struct NormalsKernels<Cpu, float>;
template struct NormalsKernels<Cpu, double>;

}  // namespace weft
