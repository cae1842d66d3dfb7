#include "runtime/matmul.h"

#include <algorithm>
#include <optional>

#include "runtime/gemm.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

// The most bytes of the right-hand matrix: it stays in the L2 cache. A left-hand matrix whose
// columns are contiguous must not be larger either: a tile reads a few elements of each of its
// lines, and beyond some 64 pages every line is a TLB miss.
constexpr i64 tile_bytes = 256 << 10;
// Rows of one task: with fewer, oneDNN 2.6 reaches half of its rate on large right-hand matrices.
constexpr i64 row_grain = 512;

template <class T>
bool rows_neighbour(const Matrix<T>& m) {
  return m.column_stride == 1 || m.columns == 1;
}
template <class T>
bool columns_neighbour(const Matrix<T>& m) {
  return m.row_stride == 1 || m.rows == 1;
}

// Row-major copy into `buffer`.
template <class T>
Matrix<const T> packed(const Matrix<const T>& m, std::optional<Scratch<T>>& buffer) {
  T* const to = buffer.emplace(m.rows * m.columns).data();
  if constexpr (!std::is_same_v<T, bf16>) {
    if (columns_neighbour(m)) {
      transpose<T>(m.columns, m.rows, {m.data, m.column_stride}, {to, m.columns});
      return {to, m.rows, m.columns, m.columns, 1};
    }
  }
  for (i64 i = 0; i < m.rows; ++i) {
    for (i64 j = 0; j < m.columns; ++j) {
      to[i * m.columns + j] = m.data[i * m.row_stride + j * m.column_stride];
    }
  }
  return {to, m.rows, m.columns, m.columns, 1};
}

template <class T, class C>
void through_library(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<C>& c,
                     bool add) {
  std::optional<Scratch<T>> buffer_a, buffer_b;
  // A library wants one stride to be 1 and the other at least the length of the row.
  const auto prepared = [](const Matrix<const T>& m, std::optional<Scratch<T>>& buffer,
                           bool& transposed, i64& leading) {
    Matrix<const T> ready = m;
    transposed = !rows_neighbour(m);
    leading = transposed ? m.column_stride : m.row_stride;
    const i64 least = transposed ? m.rows : m.columns;
    if ((transposed && !columns_neighbour(m)) || leading < least) {
      if (!(rows_neighbour(m) && m.rows == 1)) ready = packed(m, buffer);
      transposed = false;
      leading = std::max<i64>(m.columns, 1);
    }
    return ready;
  };
  bool transpose_a, transpose_b;
  i64 lda, ldb;
  const Matrix<const T> left = prepared(a, buffer_a, transpose_a, lda);
  const Matrix<const T> right = prepared(b, buffer_b, transpose_b, ldb);
  const i64 ldc = c.rows == 1 ? std::max<i64>(c.columns, 1) : c.row_stride;
  gemm(transpose_a, transpose_b, c.rows, c.columns, a.columns, left.data, lda, right.data, ldb,
       add ? 1 : 0, c.data, ldc);
}

// By tiles or by the library.
template <class T>
void multiply(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c, bool add) {
  const auto fits = [](i64 count) { return count * i64(sizeof(T)) <= tile_bytes; };
  const bool tiles =
      fits(b.rows * b.columns) && (rows_neighbour(a) || fits(a.columns * a.column_stride));
  if (!tiles && a.columns > 0) return through_library(a, b, c, add);
  std::optional<Scratch<T>> buffer;
  const Matrix<const T> right = rows_neighbour(b) ? b : packed(b, buffer);
  tile_product<T>(c.rows, c.columns, a.columns, {a.data, a.row_stride, a.column_stride},
                  {right.data, right.row_stride}, {c.data, c.row_stride}, add);
}

}  // namespace

template <class T, class C>
void matmul(const Cpu&, const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<C>& c,
            bool add) {
  if (c.rows == 0 || c.columns == 0) return;
  if constexpr (std::is_same_v<T, bf16>) {
    through_library(a, b, c, add);
  } else {
    multiply(a, b, c, add);
  }
}

template void matmul(const Cpu&, const Matrix<const float>&, const Matrix<const float>&,
                     const Matrix<float>&, bool);
template void matmul(const Cpu&, const Matrix<const double>&, const Matrix<const double>&,
                     const Matrix<double>&, bool);
template void matmul(const Cpu&, const Matrix<const bf16>&, const Matrix<const bf16>&,
                     const Matrix<bf16>&, bool);
template void matmul(const Cpu&, const Matrix<const bf16>&, const Matrix<const bf16>&,
                     const Matrix<float>&, bool);

namespace {

// Matrix number `index` of a batched tensor; the batch is counted in row-major order.
template <class T>
Matrix<T> matrix_of(const Tensor& tensor, i64 index) {
  const int rank = tensor.rank();
  i64 offset = 0;
  for (int axis = rank - 3; axis >= 0; --axis) {
    offset += index % tensor.size(axis) * tensor.stride(axis);
    index /= tensor.size(axis);
  }
  return {tensor.data<std::remove_const_t<T>>() + offset, tensor.size(rank - 2),
          tensor.size(rank - 1), tensor.stride(rank - 2), tensor.stride(rank - 1)};
}

}  // namespace

template <class Device, class T>
void MatmulKernels<Device, T>::batched(const Device& cpu, const Tensor& a, const Tensor& b,
                                       const Tensor& c, bool add) {
  i64 batch = 1;
  for (int axis = 0; axis < a.rank() - 2; ++axis) batch *= a.size(axis);
  const i64 rows = a.size(-2);
  const i64 pieces = (rows + row_grain - 1) / row_grain;
  const i64 work = std::min(rows, row_grain) * a.size(-1) * b.size(-1);
  const auto multiply = [&](i64 index, i64 begin) {
    const auto part = [&](auto matrix) {
      matrix.data += begin * matrix.row_stride;
      matrix.rows = std::min(row_grain, rows - begin);
      return matrix;
    };
    const auto into = [&]<class C>(const Matrix<C>& target) {
      matmul<T, C>(cpu, part(matrix_of<const T>(a, index)),
                   matrix_of<const T>(b, b.rank() == 2 ? 0 : index), part(target), add);
    };
    if constexpr (std::is_same_v<T, bf16>) {
      if (c.dtype() == DType::f32) return into(matrix_of<float>(c, index));
    }
    into(matrix_of<T>(c, index));
  };
  parallel_for(batch * pieces, work, [&](i64 i) { multiply(i / pieces, i % pieces * row_grain); });
}

template struct MatmulKernels<Cpu, float>;
template struct MatmulKernels<Cpu, double>;
template struct MatmulKernels<Cpu, bf16>;

}  // namespace weft
