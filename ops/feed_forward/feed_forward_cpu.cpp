#include <algorithm>

#include "ops/feed_forward/feed_forward.h"
#include "runtime/copy_rows.h"
#include "runtime/matmul.h"
#include "runtime/pack.h"
#include "runtime/prepared.h"
#include "runtime/row_sums.h"
#include "runtime/scratch.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

constexpr i64 block = 64;          // rows whose f, df and dz are in cache together
constexpr i64 narrow_block = 256;  // in bf16

template <class T>
struct Problem {
  i64 rows, d, h, out;
  const T *x, *weight1, *weight2;

  // Where the gradients lie, one after the other, that of W₁ first.
  i64 at_bias1() const { return d * h; }
  i64 at_weight2() const { return at_bias1() + h; }
  i64 at_bias2() const { return at_weight2() + h * out; }
  i64 total() const { return at_bias2() + out; }
};

template <class T>
Matrix<const T> transposed(Matrix<const T> m) {
  return {m.data, m.columns, m.rows, m.column_stride, m.row_stride};
}

// z = product + bias and f = φ(z), over rows of h; z may be the product.
template <class Phi, class T, class S>
void bias_and_activation(i64 rows, i64 h, const T* product, const T* bias, S* z, S* f) {
  for (i64 i = 0; i < rows; ++i, product += h, z += h, f += h) {
    each_pack<T>(h, [=](i64 j, i64 n) {
      const Pack<T> sum = Pack<T>::load(product + j, n) + Pack<T>::load(bias + j, n);
      sum.store(z + j, n);
      Phi::value(sum).store(f + j, n);
    });
  }
}

// f = φ(z), dz = df φ'(z), and dbias, its sum over the rows of h; dz may be df.
template <class Phi, class T, class S>
void activation_gradient(i64 rows, i64 h, const S* z, const T* df, S* f, S* dz, T* dbias) {
  for (i64 i = 0; i < rows; ++i, z += h, f += h, df += h, dz += h) {
    each_pack<T>(h, [=](i64 j, i64 n) {
      const auto [value, slope] = Phi::both(Pack<T>::load(z + j, n));
      value.store(f + j, n);
      const Pack<T> inner = Pack<T>::load(df + j, n) * slope;
      inner.store(dz + j, n);
      (Pack<T>::load(dbias + j, n) + inner).store(dbias + j, n);
    });
  }
}

template <class T>
Problem<T> problem_of(const FeedForward::Saved& saved) {
  const i64 d = saved.weight1.size(0);
  return {saved.x.rows(),         d,
          saved.weight1.size(1),  saved.weight2.size(1),
          saved.x.data<T>(),      saved.weight1.data<T>(),
          saved.weight2.data<T>()};
}

template <class Phi, class T>
void rows_forward(const Cpu& cpu, const FeedForward::Saved& saved, const Tensor& offset1,
                  const Tensor& offset2, const Tensor& result) {
  const Problem<T> p = problem_of<T>(saved);
  const T *const bias1 = offset1.data<T>(), *const bias2 = offset2.data<T>();
  T *const z = saved.z.data<T>(), *const y = result.data<T>();
  const ThreadScratch<T> activated((p.rows + block - 1) / block, std::min(p.rows, block) * p.h);
  parallel_ranges(p.rows, block, [&](i64 begin, i64 end) {
    T *const zs = z + begin * p.h, *const f = activated.mine();
    matmul<T>(cpu, rows_of(p.x, begin, end, p.d), rows_of(p.weight1, 0, p.d, p.h),
              {zs, end - begin, p.h, p.h, 1});
    bias_and_activation<Phi>(end - begin, p.h, zs, bias1, zs, f);
    T* const ys = y + begin * p.out;
    fill_rows(end - begin, p.out, bias2, ys, p.out);
    matmul<T>(cpu, {f, end - begin, p.h, p.h, 1}, rows_of(p.weight2, 0, p.h, p.out),
              {ys, end - begin, p.out, p.out, 1}, true);
  });
}

// The gradients of x, W₁, b₁, W₂ and b₂; the last four lie in `sums`.
template <class T>
std::array<Tensor, 5> in_order(const Problem<T>& p, const Tensor& dx, const Tensor& sums) {
  return {dx, sums.slice(0, 0, p.at_bias1()).reshape({p.d, p.h}),
          sums.slice(0, p.at_bias1(), p.at_weight2()),
          sums.slice(0, p.at_weight2(), p.at_bias2()).reshape({p.h, p.out}),
          sums.slice(0, p.at_bias2(), p.total())};
}

template <class Phi, class T>
std::array<Tensor, 5> rows_backward(const Cpu& cpu, const FeedForward::Saved& saved,
                                    const Tensor& gradient) {
  const Problem<T> p = problem_of<T>(saved);
  const T *const z = saved.z.data<T>(), *const dy = gradient.data<T>();
  const Tensor inner = Tensor::empty_like(saved.x);
  T* const dx = inner.data<T>();
  const Tensor back1 = packed_transpose(p.weight1, p.d, p.h);
  const Tensor back2 = packed_transpose(p.weight2, p.h, p.out);
  const Tensor sums = Tensor::empty({p.total()}, dtype_of<T>);
  const i64 held = std::min(p.rows, block) * p.h;
  const ThreadScratch<T> hidden(row_parts(p.rows, block), 2 * held);
  const auto gather = [&](i64 begin, i64 end, T* part) {
    T *const f = hidden.mine(), *const dz = f + held;
    const i64 rows = end - begin;
    const Matrix<const T> dys = rows_of(dy, begin, end, p.out);
    matmul<T>(cpu, dys, rows_of<const T>(back2.data<T>(), 0, p.out, p.h), {dz, rows, p.h, p.h, 1});
    activation_gradient<Phi>(rows, p.h, z + begin * p.h, dz, f, dz, part + p.at_bias1());
    const Matrix<const T> fs{f, rows, p.h, p.h, 1}, dzs{dz, rows, p.h, p.h, 1};
    matmul<T>(cpu, dzs, rows_of<const T>(back1.data<T>(), 0, p.h, p.d),
              {dx + begin * p.d, rows, p.d, p.d, 1});
    matmul<T>(cpu, transposed(rows_of(p.x, begin, end, p.d)), dzs, {part, p.d, p.h, p.h, 1}, true);
    matmul<T>(cpu, transposed(fs), dys, {part + p.at_weight2(), p.h, p.out, p.out, 1}, true);
    add_rows(rows, p.out, dys.data, part + p.at_bias2());
  };
  row_sums<T>(p.rows, block, p.total(), sums.data<T>(), gather);
  return in_order(p, inner, sums);
}

// In bf16: z, f and dz are rounded for the products, whose sums and df are f32.
template <class Phi>
void narrow_forward(const Cpu&, const FeedForward::Saved& saved, const Tensor& offset1,
                    const Tensor& offset2, const Tensor& result) {
  const Problem<bf16> p = problem_of<bf16>(saved);
  const PreparedRight weight1 = prepared(saved.weight1), weight2 = prepared(saved.weight2);
  bf16 *const z = saved.z.data<bf16>(), *const y = result.data<bf16>();
  const i64 calls = (p.rows + narrow_block - 1) / narrow_block;
  const i64 held = std::min(p.rows, narrow_block) * p.h;
  const ThreadScratch<float> wide(calls, held);
  const ThreadScratch<bf16> narrow(calls, held);
  parallel_ranges(p.rows, narrow_block, [&](i64 begin, i64 end) {
    const i64 rows = end - begin;
    float* const product = wide.mine();
    bf16 *const f = narrow.mine(), *const ys = y + begin * p.out;
    weight1.multiply(rows, p.x + begin * p.d, p.d, nullptr, product, p.h);
    bias_and_activation<Phi>(rows, p.h, product, offset1.data<float>(), z + begin * p.h, f);
    weight2.multiply(rows, f, p.h, offset2.data<float>(), ys, p.out);
  });
}

template <class Phi>
std::array<Tensor, 5> narrow_backward(const Cpu& cpu, const FeedForward::Saved& saved,
                                      const Tensor& gradient) {
  const Problem<bf16> p = problem_of<bf16>(saved);
  const bf16 *const z = saved.z.data<bf16>(), *const dy = gradient.data<bf16>();
  const Tensor inner = Tensor::empty_like(saved.x);
  bf16* const dx = inner.data<bf16>();
  const PreparedRight back1 = prepared(saved.weight1.transpose(0, 1));
  const PreparedRight back2 = prepared(saved.weight2.transpose(0, 1));
  const Tensor sums = Tensor::empty({p.total()}, DType::f32);
  const i64 held = std::min(p.rows, narrow_block) * p.h;
  const i64 calls = row_parts(p.rows, narrow_block);
  const ThreadScratch<float> wide(calls, held);
  const ThreadScratch<bf16> narrow(calls, 2 * held);
  const auto gather = [&](i64 begin, i64 end, float* part) {
    const i64 rows = end - begin;
    float* const df = wide.mine();
    bf16 *const f = narrow.mine(), *const dz = f + held;
    const Matrix<const bf16> dys = rows_of(dy, begin, end, p.out);
    back2.multiply(rows, dys.data, p.out, nullptr, df, p.h);
    activation_gradient<Phi>(rows, p.h, z + begin * p.h, df, f, dz, part + p.at_bias1());
    const Matrix<const bf16> f_rows{f, rows, p.h, p.h, 1}, dz_rows{dz, rows, p.h, p.h, 1};
    back1.multiply(rows, dz, p.h, nullptr, dx + begin * p.d, p.d);
    matmul<bf16, float>(cpu, transposed(rows_of(p.x, begin, end, p.d)), dz_rows,
                        {part, p.d, p.h, p.h, 1}, true);
    matmul<bf16, float>(cpu, transposed(f_rows), dys, {part + p.at_weight2(), p.h, p.out, p.out, 1},
                        true);
    add_rows(rows, p.out, dys.data, part + p.at_bias2());
  };
  row_sums<float>(p.rows, narrow_block, p.total(), sums.data<float>(), gather);
  return in_order(p, inner, sums);
}

}  // namespace

template <class Device, class T>
void FeedForwardKernels<Device, T>::forward(const Device& device, Activation activation,
                                            const Saved& saved, const Tensor& bias1,
                                            const Tensor& bias2, const Tensor& y) {
  with_activation(activation, [&]<class Phi>(Phi) {
    if constexpr (std::is_same_v<T, bf16>) {
      narrow_forward<Phi>(device, saved, bias1, bias2, y);
    } else {
      rows_forward<Phi, T>(device, saved, bias1, bias2, y);
    }
  });
}

template <class Device, class T>
std::array<Tensor, 5> FeedForwardKernels<Device, T>::backward(const Device& device,
                                                              Activation activation,
                                                              const Saved& saved,
                                                              const Tensor& dy) {
  std::array<Tensor, 5> gradients;
  with_activation(activation, [&]<class Phi>(Phi) {
    if constexpr (std::is_same_v<T, bf16>) {
      gradients = narrow_backward<Phi>(device, saved, dy);
    } else {
      gradients = rows_backward<Phi, T>(device, saved, dy);
    }
  });
  return gradients;
}

template struct FeedForwardKernels<Cpu, float>;
template struct FeedForwardKernels<Cpu, double>;
template struct FeedForwardKernels<Cpu, bf16>;

}  // namespace weft
