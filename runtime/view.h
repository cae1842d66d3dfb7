// View<T, Rank>: the typed, strided window that is all a kernel sees of a tensor.
//
// It owns nothing and includes almost nothing. Everything here is constexpr, which nvcc (with
// --expt-relaxed-constexpr) lets device code call.
#pragma once

#include <type_traits>

#include "runtime/types.h"

namespace weft {

template <class T, int Rank>
struct View {
  T* data = nullptr;
  i64 sizes[Rank] = {};
  i64 strides[Rank] = {};  // in elements

  template <class... Index>
  constexpr T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank);
    i64 offset = 0;
    int axis = 0;
    ((offset += static_cast<i64>(index) * strides[axis++]), ...);
    return data[offset];
  }

  constexpr i64 size(int axis) const { return sizes[axis]; }
  constexpr i64 stride(int axis) const { return strides[axis]; }

  // A writable view converts to a read-only one.
  template <class Read>
    requires(!std::is_const_v<T> && std::is_same_v<Read, const T>)
  constexpr operator View<Read, Rank>() const {
    View<Read, Rank> view;
    view.data = data;
    for (int axis = 0; axis < Rank; ++axis) {
      view.sizes[axis] = sizes[axis];
      view.strides[axis] = strides[axis];
    }
    return view;
  }
};

}  // namespace weft
