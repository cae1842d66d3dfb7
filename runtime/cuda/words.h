// Words of up to 16 bytes, which a thread reads or writes at once. Where each lane has several
// neighbouring columns of a row, element by element a warp touches the same sectors again and
// again; word by word it touches each once. For .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/view.h"

namespace weft {

// Elements of a word of 16 bytes.
template <class T>
inline constexpr int word = 16 / sizeof(T);

template <class T, int W>
struct alignas(W * sizeof(T)) Lanes {
  T at[W];
};
template <int W, class T>
__device__ Lanes<T, W> lanes_at(const T* from) {
  return *reinterpret_cast<const Lanes<T, W>*>(from);
}

// A row of `width` elements, `stride` apart.
template <class T>
struct ElementRow {
  T* data;
  i64 stride, width;

  // Whether the columns from `column` on are a word of W elements.
  template <int W>
  __device__ bool has_word(i64 column) const {
    return stride == 1 && column + W <= width &&
           reinterpret_cast<std::uintptr_t>(data + column) % (W * sizeof(T)) == 0;
  }
};

// The last axis of a view, at these indices of the others.
template <class T, int Rank, class... Index>
__device__ auto row_of(const View<T, Rank>& x, Index... index) {
  return ElementRow<T>{&x(index..., 0), x.stride(Rank - 1), x.size(Rank - 1)};
}

// x = the C columns of a row from `column` on; those behind its width are left as they are.
template <int C, class Element, class T>
__device__ void load_columns(const ElementRow<Element>& row, i64 column, T* x) {
  constexpr int W = std::min(C, word<T>);
#pragma unroll
  for (int c = 0; c < C; c += W, column += W) {
    if (row.template has_word<W>(column)) {
      const Lanes<T, W> lanes = lanes_at<W, T>(row.data + column);
#pragma unroll
      for (int w = 0; w < W; ++w) x[c + w] = lanes.at[w];
    } else {
#pragma unroll
      for (int w = 0; w < W; ++w) {
        if (column + w < row.width) x[c + w] = row.data[(column + w) * row.stride];
      }
    }
  }
}

// The same back.
template <int C, class T>
__device__ void store_columns(const T* x, const ElementRow<T>& row, i64 column) {
  constexpr int W = std::min(C, word<T>);
#pragma unroll
  for (int c = 0; c < C; c += W, column += W) {
    if (row.template has_word<W>(column)) {
      Lanes<T, W> lanes;
#pragma unroll
      for (int w = 0; w < W; ++w) lanes.at[w] = x[c + w];
      *reinterpret_cast<Lanes<T, W>*>(row.data + column) = lanes;
    } else {
#pragma unroll
      for (int w = 0; w < W; ++w) {
        if (column + w < row.width) row.data[(column + w) * row.stride] = x[c + w];
      }
    }
  }
}

}  // namespace weft
