#include "ops/normals/normals.h"

#include "runtime/dispatch.h"

namespace weft {

void draw_normals(const RandomKey& key, i64 each, const Tensor& to, i64 first) {
  dispatch(to, [&](auto device, auto type) {
    using T = decltype(type);
    NormalsKernels<decltype(device), T>::draw(device, key, each, first, to.count(), to.data<T>());
  });
}

}  // namespace weft
