#include <algorithm>

#include "ops/linear/linear.h"
#include "runtime/copy_rows.h"
#include "runtime/matmul.h"
#include "runtime/prepared.h"
#include "runtime/row_sums.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

constexpr i64 block = 128;  // rows that are multiplied together, in cache
// Eight sums of the gradient of a larger weight would not stay in cache.
constexpr i64 most_summed = 1 << 17;
// Columns of a larger weight's gradient that are multiplied together: with fewer, oneDNN 2.6 packs
// x again for every few of them.
constexpr i64 wide = 512;
constexpr i64 most_parts = 8;  // of such a gradient, if it has fewer columns
// Rows of a part: with fewer, clearing and adding its sums would show beside its products.
constexpr i64 least_rows = 1024;
constexpr i64 narrow_rows = 512;  // of a product in bf16

// Rows that are multiplied together if the weight does not fit the L2 cache: the library packs it
// once for each block. At least sixteen blocks of rows, if there are enough rows.
i64 rows_together(i64 rows, i64 n, i64 m) {
  return n * m <= 1 << 18 ? block : std::clamp(rows / (16 * block), i64{1}, i64{4}) * block;
}

template <class T>
T* pointer(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

bool is_turned(const Tensor& weight) {
  return !weight.contiguous() && weight.transpose(0, 1).contiguous();
}

template <class T>
Matrix<const T> matrix(const Tensor& weight) {
  return {weight.data<T>(), weight.size(0), weight.size(1), weight.stride(0), weight.stride(1)};
}

// dW (followed by db in `sums`) of one block of rows.
template <class T>
void add_weight_gradient(const Cpu& cpu, i64 begin, i64 end, i64 n, i64 m, const T* x, const T* dy,
                         T* dweight, T* dbias) {
  if (dweight != nullptr) {
    matmul<T>(cpu, {x + begin * n, n, end - begin, 1, n}, rows_of(dy, begin, end, m),
              {dweight, n, m, m, 1}, true);
  }
  if (dbias != nullptr) add_rows(end - begin, m, dy + begin * m, dbias);
}

}  // namespace

template <class Device, class T>
void LinearKernels<Device, T>::forward(const Device& cpu, const Tensor& x, const Tensor& weight,
                                       const Tensor& bias, const Tensor& y) {
  const i64 n = weight.size(0), m = weight.size(1), rows = x.rows();
  const T* const inputs = x.data<T>();
  const Matrix<const T> factors = matrix<T>(weight);
  const T* const offset = pointer<T>(bias);
  T* const to = y.data<T>();
  parallel_ranges(rows, rows_together(rows, n, m), [&](i64 begin, i64 end) {
    if (offset != nullptr) fill_rows(end - begin, m, offset, to + begin * m, m);
    matmul<T>(cpu, rows_of(inputs, begin, end, n), factors, rows_of(to, begin, end, m),
              offset != nullptr);
  });
}

template <class Device, class T>
void LinearKernels<Device, T>::backward(const Device& cpu, const Tensor& inputs,
                                        const Tensor& weight, const Tensor& gradient,
                                        const LinearGradients& gradients) {
  const i64 n = weight.size(0), m = weight.size(1), rows = gradient.rows();
  const T *const x = inputs.data<T>(), *const dy = gradient.data<T>();
  T *const dx = pointer<T>(gradients.x), *dweight = pointer<T>(gradients.weight);
  T* const dbias = pointer<T>(gradients.bias);
  Tensor turned;
  if (dx != nullptr) {
    turned =
        is_turned(weight) ? weight.transpose(0, 1) : packed_transpose<T>(weight.data<T>(), n, m);
  }
  const T* const back = pointer<T>(turned);
  const auto find_dx = [&](i64 begin, i64 end) {
    matmul<T>(cpu, rows_of(dy, begin, end, m), rows_of(back, 0, m, n), rows_of(dx, begin, end, n));
  };
  // Both gradients are computed from rows of dy that are in cache.
  const bool together = dx != nullptr && dweight != nullptr && n * m <= most_summed;
  if (dx != nullptr && !together) parallel_ranges(rows, rows_together(rows, n, m), find_dx);
  if (dweight != nullptr && n * m > most_summed) {
    const i64 pieces = (m + wide - 1) / wide;
    const i64 parts = std::clamp(rows / least_rows, i64{1}, std::max(most_parts / pieces, i64{1}));
    row_sums<T>(rows, std::max<i64>((rows + parts - 1) / parts, 1), n * m, dweight,
                [&](i64 i, i64 last, T* part) {
                  parallel_ranges(m, wide, [&](i64 begin, i64 end) {
                    matmul<T>(cpu, {x + i * n, n, last - i, 1, n},
                              {dy + i * m + begin, last - i, end - begin, m, 1},
                              {part + begin, n, end - begin, m, 1}, true);
                  });
                });
    dweight = nullptr;
  }
  if (dweight == nullptr && dbias == nullptr) return;
  const i64 count = dweight != nullptr ? n * m : 0;
  Tensor sums = Tensor::empty({count + m}, dtype_of<T>);
  row_sums<T>(rows, block, count + m, sums.data<T>(), [&](i64 begin, i64 end, T* part) {
    if (together) find_dx(begin, end);
    add_weight_gradient(cpu, begin, end, n, m, x, dy, dweight != nullptr ? part : nullptr,
                        dbias != nullptr ? part + count : nullptr);
  });
  const T* const total = sums.data<T>();
  if (dweight != nullptr) std::copy(total, total + count, dweight);
  if (dbias != nullptr) std::copy(total + count, total + count + m, dbias);
}

template <>
void LinearKernels<Cpu, bf16>::forward(const Cpu&, const Tensor& x, const Tensor& weight,
                                       const Tensor& bias, const Tensor& y) {
  const i64 n = weight.size(0), m = weight.size(1);
  const PreparedRight right = prepared(weight);
  const bf16* const inputs = x.data<bf16>();
  const float* const offset = pointer<float>(bias);
  bf16* const to = y.data<bf16>();
  parallel_ranges(x.rows(), narrow_rows, [&](i64 begin, i64 end) {
    right.multiply(end - begin, inputs + begin * n, n, offset, to + begin * m, m);
  });
}

template <>
void LinearKernels<Cpu, bf16>::backward(const Cpu& cpu, const Tensor& inputs, const Tensor& weight,
                                        const Tensor& gradient, const LinearGradients& gradients) {
  const i64 n = weight.size(0), m = weight.size(1), rows = gradient.rows();
  const bf16 *const x = inputs.data<bf16>(), *const dy = gradient.data<bf16>();
  if (bf16* const dx = pointer<bf16>(gradients.x)) {
    const PreparedRight back = prepared(weight.transpose(0, 1));
    parallel_ranges(rows, narrow_rows, [&](i64 begin, i64 end) {
      back.multiply(end - begin, dy + begin * m, m, nullptr, dx + begin * n, n);
    });
  }
  if (float* const dweight = pointer<float>(gradients.weight)) {
    row_sums<float>(rows, least_rows, n * m, dweight, [&](i64 begin, i64 end, float* part) {
      matmul<bf16, float>(cpu, {x + begin * n, n, end - begin, 1, n}, rows_of(dy, begin, end, m),
                          {part, n, m, m, 1}, true);
    });
  }
  if (float* const dbias = pointer<float>(gradients.bias)) {
    row_sums<float>(rows, least_rows, m, dbias, [&](i64 begin, i64 end, float* part) {
      add_rows(end - begin, m, dy + begin * m, part);
    });
  }
}

template struct LinearKernels<Cpu, float>;
template struct LinearKernels<Cpu, double>;

}  // namespace weft
