#include "ops/blocks/kernels.h"
#include "runtime/pack.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 strip = 64;  // features that are processed together

// f(b, t, h, first feature, count) for strips of the rows [B, n, H, E] of blocks of x.
template <class T, class F>
void each_strip(const Blocks& blocks, const View<T, 4>& rows, const F& f) {
  const i64 n = rows.size(1), E = rows.size(3);
  parallel_for(rows.size(0) * n, blocks.size * rows.size(2) * E, [&](i64 piece) {
    for (i64 h = 0; h < rows.size(2); ++h) {
      for (i64 e = 0; e < E; e += strip) f(piece / n, piece % n, h, e, std::min(strip, E - e));
    }
  });
}

}  // namespace

template <class Device, class T>
void BlockKernels<Device, T>::sum(const Device&, const Blocks& blocks, bool mean,
                                  View<const T, 4> x, View<T, 4> y) {
  each_strip(blocks, y, [&](i64 b, i64 t, i64 h, i64 first, i64 width) {
    double sums[strip] = {};
    for (i64 i = blocks.begin(t); i < blocks.end(b, t); ++i) {
      const T* const row = &x(b, i, h, first);
      const i64 step = x.stride(3);
      for (i64 e = 0; e < width; ++e) sums[e] += double(row[e * step]);
    }
    const double count = mean ? double(std::max<i64>(blocks.count(b, t), 1)) : 1;
    for (i64 e = 0; e < width; ++e) y(b, t, h, first + e) = static_cast<T>(sums[e] / count);
  });
}

template <class Device, class T>
void BlockKernels<Device, T>::maximum(const Device&, const Blocks& blocks, View<const T, 4> x,
                                      View<T, 4> y, View<i64, 4> positions) {
  each_strip(blocks, y, [&](i64 b, i64 t, i64 h, i64 first, i64 width) {
    T largest[strip] = {};
    i64 at[strip];
    std::fill_n(at, width, blocks.count(b, t) == 0 ? -1 : blocks.begin(t));
    for (i64 i = blocks.begin(t); i < blocks.end(b, t); ++i) {
      const T* const row = &x(b, i, h, first);
      const i64 step = x.stride(3);
      for (i64 e = 0; e < width; ++e) {
        const T value = row[e * step];
        if (i > blocks.begin(t) && !exceeds(value, largest[e])) continue;
        largest[e] = value;
        at[e] = i;
      }
    }
    for (i64 e = 0; e < width; ++e) {
      y(b, t, h, first + e) = largest[e];
      positions(b, t, h, first + e) = at[e];
    }
  });
}

namespace {

// The largest logit of each lane's feature, over the valid positions of a block; z(i) loads those
// of position i. The maximum may miss a NaN, but its exponential is NaN as well.
template <class T, class F>
HWY_INLINE Pack<T> largest(i64 begin, i64 end, const F& z) {
  Pack<T> most = begin < end ? z(begin) : Pack<T>(0.0);
  for (i64 i = begin + 1; i < end; ++i) most = where(most < z(i), z(i), most);
  return most;
}

// f(b, t, h, first feature, features) for vectors of features of each block.
template <class T, class F>
void each_vector(const Blocks& blocks, const View<T, 4>& rows, const F& f) {
  each_strip(blocks, rows, [&](i64 b, i64 t, i64 h, i64 first, i64 width) {
    each_pack<std::remove_const_t<T>>(width, [&](i64 e, i64 n) { f(b, t, h, first + e, n); });
  });
}

}  // namespace

template <class Device, class T>
void BlockKernels<Device, T>::weighted_mean(const Device&, const Blocks& blocks, View<const T, 4> x,
                                            View<const T, 4> logits, View<T, 4> y) {
  each_vector(blocks, y, [&](i64 b, i64 t, i64 h, i64 e, i64 n) {
    const i64 begin = blocks.begin(t), end = blocks.end(b, t);
    const auto z = [&](i64 i) { return Pack<T>::load(&logits(b, i, h, e), n); };
    const Pack<T> most = largest<T>(begin, end, z);
    Pack<T> sum = 0.0, total = 0.0;
    for (i64 i = begin; i < end; ++i) {
      const Pack<T> weight = exp(z(i) - most);
      sum = sum + weight;
      total = total + weight * Pack<T>::load(&x(b, i, h, e), n);
    }
    (begin < end ? total / sum : total).store(&y(b, t, h, e), n);
  });
}

template <class Device, class T>
void BlockKernels<Device, T>::weighted_mean_backward(const Device&, const Blocks& blocks,
                                                     View<const T, 4> x, View<const T, 4> logits,
                                                     View<const T, 4> y, View<const T, 4> dy,
                                                     View<T, 4> dx, View<T, 4> dlogits) {
  each_vector(blocks, y, [&](i64 b, i64 t, i64 h, i64 e, i64 n) {
    const i64 begin = blocks.begin(t), end = blocks.end(b, t);
    const auto z = [&](i64 i) { return Pack<T>::load(&logits(b, i, h, e), n); };
    const Pack<T> most = largest<T>(begin, end, z);
    Pack<T> sum = 0.0;
    for (i64 i = begin; i < end; ++i) sum = sum + exp(z(i) - most);
    const Pack<T> mean = Pack<T>::load(&y(b, t, h, e), n);
    const Pack<T> share = Pack<T>::load(&dy(b, t, h, e), n) / sum;
    for (i64 i = begin; i < std::min(begin + blocks.size, blocks.positions); ++i) {
      const Pack<T> gradient = i < end ? exp(z(i) - most) * share : Pack<T>(0.0);
      const Pack<T> apart = Pack<T>::load(&x(b, i, h, e), n) - mean;
      gradient.store(&dx(b, i, h, e), n);
      (i < end ? gradient * apart : gradient).store(&dlogits(b, i, h, e), n);
    }
  });
}

template <class Device, class T>
void BlockKernels<Device, T>::spread(const Device&, const Blocks& blocks, bool mean,
                                     View<const T, 4> x, View<const T, 4> r, View<T, 4> y) {
  each_strip(blocks, r, [&](i64 b, i64 t, i64 h, i64 first, i64 width) {
    T added[strip];
    const double count = mean ? double(std::max<i64>(blocks.count(b, t), 1)) : 1;
    for (i64 e = 0; e < width; ++e) {
      added[e] = static_cast<T>(double(r(b, t, h, first + e)) / count);
    }
    const i64 last = std::min(blocks.begin(t) + blocks.size, blocks.positions);
    for (i64 i = blocks.begin(t); i < last; ++i) {
      T* const to = &y(b, i, h, first);  // y is packed: features are contiguous
      const bool inside = i < blocks.end(b, t);
      for (i64 e = 0; e < width; ++e) to[e] = inside ? added[e] : T(0);
      if (x.data == nullptr) continue;
      const T* const from = &x(b, i, h, first);
      const i64 step = x.stride(3);
      for (i64 e = 0; e < width; ++e) to[e] += from[e * step];
    }
  });
}

template <class Device, class T>
void BlockKernels<Device, T>::place(const Device&, const Blocks& blocks,
                                    View<const i64, 4> positions, View<const T, 4> r,
                                    View<T, 4> y) {
  each_strip(blocks, r, [&](i64 b, i64 t, i64 h, i64 first, i64 width) {
    const i64 last = std::min(blocks.begin(t) + blocks.size, blocks.positions);
    for (i64 i = blocks.begin(t); i < last; ++i) {
      std::fill_n(&y(b, i, h, first), width, T(0));
    }
    for (i64 e = first; e < first + width; ++e) {
      const i64 i = positions(b, t, h, e);
      if (i >= 0) y(b, i, h, e) = r(b, t, h, e);
    }
  });
}

template struct BlockKernels<Cpu, float>;
template struct BlockKernels<Cpu, double>;

}  // namespace weft
