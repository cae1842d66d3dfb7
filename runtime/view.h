// View<T, Rank>: the typed, strided window that is all a kernel sees of a tensor.
//
// It owns nothing and includes next to nothing. Everything here is constexpr, which nvcc (with
// --expt-relaxed-constexpr) lets device code call as it is.
#pragma once

#include <cstdint>

namespace weft {

template <class T, int Rank>
struct View {
  T* data = nullptr;
  std::int64_t sizes[Rank] = {};
  std::int64_t strides[Rank] = {};  // in elements

  template <class... Index>
  constexpr T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank);
    std::int64_t offset = 0;
    int axis = 0;
    ((offset += static_cast<std::int64_t>(index) * strides[axis++]), ...);
    return data[offset];
  }

  constexpr std::int64_t size(int axis) const { return sizes[axis]; }
  constexpr std::int64_t stride(int axis) const { return strides[axis]; }
};

}  // namespace weft
