// CPU kernels of moving_average.h. Vector lanes hold channels. A task is a block of a few vectors
// of channels of one item; its rows are copied strip by strip so that the positions of a vector are
// contiguous, and the states of a vector pass over a strip a few at a time, in registers.
#include <algorithm>
#include <cmath>

#include "ops/moving_average/kernels.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"
#include "runtime/simd.h"

namespace weft {
namespace {

namespace hn = simd::hn;

constexpr i64 strip = 64;   // positions
constexpr i64 across = 4;   // vectors of channels
constexpr i64 abreast = 4;  // states in registers

// The direction of a scan, and its coefficients.
struct Way {
  bool reversed;
  i64 set;
};

template <class T>
struct ChannelBlock {
  static constexpr i64 lanes = simd::lanes<T>, widest = across * lanes;
  using Vector = simd::Vector<T>;

  const MovingAverages<T>& p;
  i64 b, length, first, width, vectors, states;
  bool truncated;
  Pieces<T> pieces;
  T *decay, *weight, *far, *far_slope, *state, *slope;  // [vectors, states, lanes]
  T *x, *lagged, *y;                                    // [vectors, strip, lanes]

  // `N`: the positions of the longest item.
  ChannelBlock(const MovingAverages<T>& problem, i64 N, i64 item, i64 channel)
      : p(problem),
        b(item),
        length(length_of(problem.lengths, item, N)),
        first(channel),
        width(std::min(widest, problem.channels() - channel)),
        vectors((width + lanes - 1) / lanes),
        states((problem.states() + abreast - 1) / abreast * abreast),
        truncated(problem.truncated(length)),
        pieces(widest * (6 * states + 3 * strip)) {
    for (T** const each : {&decay, &weight, &far, &far_slope, &state, &slope}) {
      *each = pieces.take(widest * states);
    }
    for (T** const each : {&x, &lagged, &y}) *each = pieces.take(widest * strip);
  }

  // Initialises the states before the first position, and the coefficients of a direction. Padding
  // states and channels have weight 0.
  void start(const Way& way) {
    std::fill(decay, decay + 6 * widest * states, T(0));
    const T t = static_cast<T>(p.truncation);
    for (i64 c = 0; c < width; ++c) {
      for (i64 k = 0; k < p.states(); ++k) {
        const i64 at = (c / lanes * states + k) * lanes + c % lanes;
        const T q = p.decay(way.set, first + c, k);
        decay[at] = q;
        weight[at] = p.weight(way.set, first + c, k);
        if (truncated) far[at] = std::pow(q, t), far_slope[at] = t * std::pow(q, t - 1);
        if (p.state.data != nullptr) state[at] = p.state(b, first + c, k);
      }
    }
  }

  void keep_state() const {
    for (i64 c = 0; c < width; ++c) {
      for (i64 k = 0; k < p.states(); ++k) {
        p.state(b, first + c, k) = state[(c / lanes * states + k) * lanes + c % lanes];
      }
    }
  }

  // Copies rows begin … begin + count − 1 to `to`; those before `least` are zeros.
  void load(const ScannedRows<const T>& rows, i64 begin, i64 count, i64 least, T* to) const {
    for (i64 i = 0; i < count; ++i) {
      for (i64 v = 0; v < vectors; ++v) {
        const Vector value =
            begin + i < least
                ? hn::Zero(simd::Tag<T>{})
                : simd::load<T>(rows.row(begin + i) + first + v * lanes, width - v * lanes);
        hn::StoreU(value, simd::Tag<T>{}, to + (v * strip + i) * lanes);
      }
    }
  }
  void load_inputs(const ScannedRows<const T>& rows, i64 begin, i64 count) const {
    load(rows, begin, count, begin, x);
    if (truncated) load(rows, begin - p.truncation, count, -p.earlier, lagged);
  }
  void store(const ScannedRows<T>& rows, i64 begin, i64 count, bool add) const {
    for (i64 i = 0; i < count; ++i) {
      for (i64 v = 0; v < vectors; ++v) {
        T* const to = rows.row(begin + i) + first + v * lanes;
        Vector value = hn::LoadU(simd::Tag<T>{}, y + (v * strip + i) * lanes);
        if (add) value = hn::Add(value, simd::load<T>(to, width - v * lanes));
        simd::store<T>(value, to, width - v * lanes);
      }
    }
  }

  // `count` states from number `begin` on, of one vector of channels.
  template <i64 count>
  static HWY_INLINE void read(const T* from, Vector (&to)[count]) {
    for (i64 k = 0; k < count; ++k) to[k] = hn::LoadU(simd::Tag<T>{}, from + k * lanes);
  }
  template <i64 count>
  static HWY_INLINE void write(const Vector (&from)[count], T* to) {
    for (i64 k = 0; k < count; ++k) hn::StoreU(from[k], simd::Tag<T>{}, to + k * lanes);
  }

  // y of a strip.
  template <bool cut>
  HWY_INLINE void average(i64 count) const {
    const simd::Tag<T> d;
    for (i64 v = 0; v < vectors; ++v) {
      const T *const in = x + v * strip * lanes, *const gone = lagged + v * strip * lanes;
      T* const out = y + v * strip * lanes;
      for (i64 at = v * states * lanes; at < (v + 1) * states * lanes; at += abreast * lanes) {
        Vector q[abreast], c[abreast], r[abreast], s[abreast];
        read(decay + at, q), read(weight + at, c), read(far + at, r), read(state + at, s);
        const bool begins = at == v * states * lanes;
        for (i64 i = 0; i < count; ++i) {
          const Vector value = hn::LoadU(d, in + i * lanes);
          const Vector leaves = cut ? hn::LoadU(d, gone + i * lanes) : value;
          Vector sum = begins ? hn::Zero(d) : hn::LoadU(d, out + i * lanes);
#pragma GCC unroll 8
          for (i64 k = 0; k < abreast; ++k) {
            s[k] = hn::MulAdd(q[k], s[k], cut ? hn::NegMulAdd(r[k], leaves, value) : value);
            sum = hn::MulAdd(c[k], s[k], sum);
          }
          hn::StoreU(sum, d, out + i * lanes);
        }
        write(s, state + at);
      }
    }
  }

  // to = the average of all rows; adds it if `add`.
  void scan(const Way& way, const View<const T, 3>& from, const View<T, 3>& to, bool add) {
    const ScannedRows<const T> in(from, b, length, way.reversed);
    const ScannedRows<T> out(to, b, length, way.reversed);
    start(way);
    for (i64 begin = 0; begin < length; begin += strip) {
      const i64 count = std::min(strip, length - begin);
      load_inputs(in, begin, count);
      truncated ? average<true>(count) : average<false>(count);
      store(out, begin, count, add);
    }
    if (p.state.data != nullptr) keep_state();
  }

  // Adds Σ dy s and Σ dy w of a strip to the sums; dy is in y.
  template <bool cut>
  HWY_INLINE void add_products(i64 count, double* of_weight, double* of_decay) const {
    constexpr i64 pair = 2;
    const simd::Tag<T> d;
    for (i64 v = 0; v < vectors; ++v) {
      const T *const in = x + v * strip * lanes, *const gone = lagged + v * strip * lanes;
      const T* const dy = y + v * strip * lanes;
      for (i64 at = v * states * lanes; at < (v + 1) * states * lanes; at += pair * lanes) {
        Vector q[pair], r[pair], dr[pair], s[pair], w[pair];
        read(decay + at, q), read(far + at, r), read(far_slope + at, dr);
        read(state + at, s), read(slope + at, w);
        Vector dc[pair] = {hn::Zero(d), hn::Zero(d)}, dq[pair] = {hn::Zero(d), hn::Zero(d)};
        for (i64 i = 0; i < count; ++i) {
          const Vector value = hn::LoadU(d, in + i * lanes), given = hn::LoadU(d, dy + i * lanes);
          const Vector leaves = cut ? hn::LoadU(d, gone + i * lanes) : value;
#pragma GCC unroll 2
          for (i64 k = 0; k < pair; ++k) {
            w[k] = hn::MulAdd(q[k], w[k], cut ? hn::NegMulAdd(dr[k], leaves, s[k]) : s[k]);
            s[k] = hn::MulAdd(q[k], s[k], cut ? hn::NegMulAdd(r[k], leaves, value) : value);
            dc[k] = hn::MulAdd(given, s[k], dc[k]);
            dq[k] = hn::MulAdd(given, w[k], dq[k]);
          }
        }
        write(s, state + at), write(w, slope + at);
        HWY_ALIGN T sums[2 * pair * lanes];
        write(dc, sums), write(dq, sums + pair * lanes);
        for (i64 l = 0; l < pair * lanes; ++l) {
          of_weight[at + l] += double(sums[l]);
          of_decay[at + l] += double(sums[pair * lanes + l]);
        }
      }
    }
  }

  // The gradients of a set of coefficients, [D, d, n] for each item.
  void sum(const Way& way, const View<const T, 3>& inputs, const View<const T, 3>& gradients,
           const View<T, 4>& ddecay, const View<T, 4>& dweight) {
    const ScannedRows<const T> in(inputs, b, length, way.reversed);
    const ScannedRows<const T> given(gradients, b, length, way.reversed);
    const i64 numbers = vectors * states * lanes;
    const Scratch<double> sums(2 * numbers);
    double *const of_weight = sums.data(), *const of_decay = of_weight + numbers;
    std::fill(of_weight, of_weight + 2 * numbers, 0.0);
    start(way);
    for (i64 begin = 0; begin < length; begin += strip) {
      const i64 count = std::min(strip, length - begin);
      load_inputs(in, begin, count);
      load(given, begin, count, begin, y);
      truncated ? add_products<true>(count, of_weight, of_decay)
                : add_products<false>(count, of_weight, of_decay);
    }
    for (i64 c = 0; c < width; ++c) {
      for (i64 k = 0; k < p.states(); ++k) {
        const i64 at = (c / lanes * states + k) * lanes + c % lanes;
        dweight(b, way.set, first + c, k) = static_cast<T>(of_weight[at]);
        ddecay(b, way.set, first + c, k) = static_cast<T>(double(weight[at]) * of_decay[at]);
      }
    }
  }

  void clear(const View<T, 3>& rows) const {
    for (i64 i = length; i < rows.size(1); ++i) {
      T* const row = &rows(b, i, first);
      std::fill(row, row + width, T(0));
    }
  }
};

// Calls f(block) for all blocks of channels of all items, in parallel.
template <class T, class F>
void each_block(const MovingAverages<T>& p, i64 B, i64 N, const F& f) {
  constexpr i64 widest = ChannelBlock<T>::widest;
  const i64 blocks = (p.channels() + widest - 1) / widest;
  parallel_for(B * blocks, 2 * p.directions() * N * widest * p.states(), [&](i64 piece) {
    ChannelBlock<T> block(p, N, piece / blocks, piece % blocks * widest);
    f(block);
  });
}

}  // namespace

template <class Device, class T>
void MovingAverageKernels<Device, T>::forward(const Device&, const MovingAverages<T>& p,
                                              View<const T, 3> x, View<T, 3> y) {
  each_block(p, x.size(0), x.size(1), [&](ChannelBlock<T>& block) {
    block.scan({false, 0}, x, y, false);
    if (p.directions() == 2) block.scan({true, 1}, x, y, true);
    block.clear(y);
  });
}

template <class Device, class T>
void MovingAverageKernels<Device, T>::backward(const Device&, const MovingAverages<T>& p,
                                               View<const T, 3> dy, View<T, 3> dx) {
  each_block(p, dy.size(0), dy.size(1), [&](ChannelBlock<T>& block) {
    block.scan({true, 0}, dy, dx, false);
    if (p.directions() == 2) block.scan({false, 1}, dy, dx, true);
    block.clear(dx);
  });
}

template <class Device, class T>
i64 MovingAverageKernels<Device, T>::parts(i64 B, i64) {
  return B;
}

template <class Device, class T>
void MovingAverageKernels<Device, T>::sums(const Device&, const MovingAverages<T>& p,
                                           View<const T, 3> x, View<const T, 3> dy,
                                           View<T, 4> ddecay, View<T, 4> dweight) {
  each_block(p, x.size(0), x.size(1), [&](ChannelBlock<T>& block) {
    block.sum({false, 0}, x, dy, ddecay, dweight);
    if (p.directions() == 2) block.sum({true, 1}, x, dy, ddecay, dweight);
  });
}

template struct MovingAverageKernels<Cpu, float>;
template struct MovingAverageKernels<Cpu, double>;

}  // namespace weft
