// Rows of one batch item and head, between a tensor [B, N, H, width] and packed memory.
#pragma once

#include <algorithm>

#include "runtime/copy_rows.h"
#include "runtime/transpose.h"
#include "runtime/view.h"

namespace weft {

// to [rows, width] = scale · x[begin + row, :] for rows of one batch item and head.
template <class S, class T>
void pack_rows(const View<const S, 4>& x, i64 b, i64 h, i64 begin, i64 rows, T scale, T* to) {
  if (rows <= 0) return;
  copy_rows(rows, x.size(3), scale, &x(b, begin, h, 0), x.stride(1), x.stride(3), to, x.size(3),
            i64{1}, x.size(1) - begin);
}

// x[begin + row, :] = scale · from [rows, width], the inverse copy; with `add`, +=.
template <class T, class S>
void unpack_rows(const T* from, i64 b, i64 h, i64 begin, i64 rows, const View<S, 4>& x, T scale = 1,
                 bool add = false) {
  if (rows <= 0) return;
  S* const to = &x(b, begin, h, 0);
  const i64 width = x.size(3), step = x.stride(3);
  if (!add) {
    return copy_rows(rows, width, scale, from, width, i64{1}, to, x.stride(1), step,
                     x.size(1) - begin);
  }
  for (i64 i = 0; i < rows; ++i) {
    S* const row = to + i * x.stride(1);
    for (i64 e = 0; e < width; ++e) {
      row[e * step] = convert<S>(convert<T>(row[e * step]) + scale * from[i * width + e]);
    }
  }
}

// to [width, block] = the transpose of rows [rows, width]; columns from `rows` on are zero.
template <class T>
void transpose_block(const T* rows_data, i64 rows, i64 width, i64 block, T* to) {
  transpose<T>(rows, width, {rows_data, width}, {to, block});
  for (i64 e = 0; rows < block && e < width; ++e) {
    std::fill(to + e * block + rows, to + (e + 1) * block, T(0));
  }
}

// Zeros in rows begin … of one batch item and head.
template <class T>
void clear_rows(const View<T, 4>& x, i64 b, i64 h, i64 begin) {
  for (i64 i = begin; i < x.size(1); ++i) {
    for (i64 e = 0; e < x.size(3); ++e) x(b, i, h, e) = T();
  }
}

}  // namespace weft
