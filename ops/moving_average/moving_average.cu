// CUDA kernels of moving_average.h. A scan is split into chunks of 64 positions: the states after
// each chunk as if it were the first; these carried along the sequence, chunk after chunk; then
// every chunk from the states before it. Only the second step is serial, and has N/64 steps.
//
// In the first two steps a thread has one of the n states of a channel, and neighbours the others
// of it: they read coefficients and write states side by side, and share what they read of x. In
// the third a thread has a channel, and neighbours read neighbours of x; coefficients and states it
// reads word by word.
//
// Workspace: n numbers a channel and chunk, and for the gradients of the coefficients twice that.
// Unmeasured on a device.
#include <cmath>

#include "ops/moving_average/kernels.h"
#include "runtime/cuda/loops.h"
#include "runtime/cuda/words.h"
#include "runtime/cuda/workspace.h"

namespace weft {
namespace {

constexpr i64 chunk = 64;
constexpr int abreast = 4;  // states in registers

constexpr i64 chunks_of(i64 N) { return (N + chunk - 1) / chunk; }

// Arguments that all kernels of a scan share.
template <class T>
struct Scanned {
  MovingAverages<T> p;
  View<const T, 3> x;
  bool reversed;
  i64 set;                    // of coefficients
  View<T, 4> state, slope;    // s and w at the chunks, [B, chunks, d, n]; slope may have no data

  // One channel of one item.
  struct Channel {
    const Scanned& of;
    i64 b, c, length;
    ScannedRows<const T> rows;

    __device__ Channel(const Scanned& scanned, i64 item, i64 channel)
        : of(scanned),
          b(item),
          c(channel),
          length(length_of(of.p.lengths, b, of.x.size(1))),
          rows(of.x, b, length, of.reversed) {}

    __device__ i64 begin(i64 m) const { return m * chunk; }
    __device__ i64 end(i64 m) const { return (m + 1) * chunk < length ? (m + 1) * chunk : length; }
    __device__ T input(i64 i) const { return rows.row(i)[c]; }
    // The row that leaves the window at position i; 0 if there is none.
    __device__ T gone(i64 i) const {
      const i64 from = i - of.p.truncation;
      return of.p.truncated(length) && from >= -of.p.earlier ? rows.row(from)[c] : T(0);
    }
  };

  // A state and its slope, advanced by one position.
  struct State {
    T q, far, far_slope, s = 0, w = 0;

    __device__ State(const Scanned& of, T decay) : q(decay) {
      const T t = static_cast<T>(of.p.truncation);
      far = of.p.truncation > 0 ? pow(q, t) : T(0);
      far_slope = of.p.truncation > 0 && of.slope.data != nullptr ? t * pow(q, t - 1) : T(0);
    }
    __device__ void add(T input, T gone) {
      w = s + q * w - far_slope * gone;
      s = input + q * s - far * gone;
    }
  };
};

// The states after every chunk, as if there were nothing before it.
template <class T>
struct BehindChunks {
  Scanned<T> of;

  __device__ void operator()(i64 number) const {
    const i64 d = of.p.channels(), n = of.p.states(), k = number % n, c = number / n % d;
    const i64 m = number / d / n % of.state.size(1), b = number / d / n / of.state.size(1);
    const typename Scanned<T>::Channel at(of, b, c);
    typename Scanned<T>::State state(of, of.p.decay(of.set, c, k));
    for (i64 i = at.begin(m); i < at.end(m); ++i) state.add(at.input(i), at.gone(i));
    of.state(b, m, c, k) = state.s;
    if (of.slope.data != nullptr) of.slope(b, m, c, k) = state.w;
  }
};

// Replaces them by the states before every chunk. Over r positions without input s becomes q^r s,
// and w becomes q^r w + r q^(r−1) s.
template <class T>
struct BeforeChunks {
  Scanned<T> of;

  __device__ void operator()(i64 number) const {
    const i64 d = of.p.channels(), n = of.p.states();
    const i64 k = number % n, c = number / n % d, b = number / d / n;
    const typename Scanned<T>::Channel at(of, b, c);
    const bool kept = of.p.state.data != nullptr;
    const T q = of.p.decay(of.set, c, k);
    T s = kept ? of.p.state(b, c, k) : T(0), w = 0;
    for (i64 m = 0; at.begin(m) < at.length; ++m) {
      const T r = static_cast<T>(at.end(m) - at.begin(m)), far = pow(q, r);
      const T own = of.state(b, m, c, k);
      of.state(b, m, c, k) = s;
      if (of.slope.data != nullptr) {
        const T own_slope = of.slope(b, m, c, k);
        of.slope(b, m, c, k) = w;
        w = own_slope + far * w + r * pow(q, r - 1) * s;
      }
      s = own + far * s;
    }
    if (kept) of.p.state(b, c, k) = s;
  }
};

// Writes y of a chunk, or adds it; 0 from the length on.
template <class T>
struct Outputs {
  Scanned<T> of;
  View<T, 3> y;
  bool add;

  __device__ void operator()(i64 number) const {
    const i64 d = of.p.channels(), n = of.p.states(), c = number % d;
    const i64 m = number / d % of.state.size(1), b = number / d / of.state.size(1);
    const typename Scanned<T>::Channel at(of, b, c);
    const ScannedRows<T> out(y, b, at.length, of.reversed);
    for (i64 first = 0; first < n; first += abreast) {
      T decay[abreast] = {}, weight[abreast] = {}, before[abreast] = {};
      load_columns<abreast>(row_of(of.p.decay, of.set, c), first, decay);
      if (at.begin(m) < at.length) {
        load_columns<abreast>(row_of(of.p.weight, of.set, c), first, weight);
        load_columns<abreast>(row_of(of.state, b, m, c), first, before);
      }
      typename Scanned<T>::State state[abreast] = {
          {of, decay[0]}, {of, decay[1]}, {of, decay[2]}, {of, decay[3]}};
#pragma unroll
      for (int k = 0; k < abreast; ++k) state[k].s = before[k];
      for (i64 i = at.begin(m); i < at.end(m); ++i) {
        const T input = at.input(i), gone = at.gone(i);
        T* const to = out.row(i) + c;
        T sum = add || first > 0 ? *to : T(0);
#pragma unroll
        for (int k = 0; k < abreast; ++k) {
          state[k].add(input, gone);
          sum += weight[k] * state[k].s;
        }
        *to = sum;
      }
    }
    for (i64 i = m * chunk; !add && i < (m + 1) * chunk && i < y.size(1); ++i) {
      if (i >= at.length) y(b, i, c) = 0;
    }
  }
};

// Σ dy s and c Σ dy w of a chunk.
template <class T>
struct Products {
  Scanned<T> of;
  View<const T, 3> dy;
  View<T, 4> ddecay, dweight;

  __device__ void operator()(i64 number) const {
    const i64 d = of.p.channels(), n = of.p.states(), k = number % n, c = number / n % d;
    const i64 m = number / d / n % of.state.size(1), b = number / d / n / of.state.size(1);
    const typename Scanned<T>::Channel at(of, b, c);
    const ScannedRows<const T> given(dy, b, at.length, of.reversed);
    typename Scanned<T>::State state(of, of.p.decay(of.set, c, k));
    T of_weight = 0, of_decay = 0;
    if (at.begin(m) < at.length) state.s = of.state(b, m, c, k), state.w = of.slope(b, m, c, k);
    for (i64 i = at.begin(m); i < at.end(m); ++i) {
      state.add(at.input(i), at.gone(i));
      const T gradient = given.row(i)[c];
      of_weight += gradient * state.s;
      of_decay += gradient * state.w;
    }
    const i64 part = b * of.state.size(1) + m;
    dweight(part, of.set, c, k) = of_weight;
    ddecay(part, of.set, c, k) = of.p.weight(of.set, c, k) * of_decay;
  }
};

// One scan: the states before its chunks, in workspace.
template <class T>
struct Scan {
  static constexpr const char* name = "moving_average";
  const Cuda& device;
  Workspace<T> states, slopes;
  Scanned<T> of;
  i64 chunks;  // of all items

  Scan(const Cuda& on, const MovingAverages<T>& p, const View<const T, 3>& x, bool reversed,
       i64 set, bool with_slopes)
      : device(on), of{p, x, reversed, set, {}, {}}, chunks(x.size(0) * chunks_of(x.size(1))) {
    const i64 numbers = chunks * p.states() * p.channels();
    const auto made = [&](Workspace<T>& space) {
      space = Workspace<T>(device, numbers);
      return space.view(x.size(0), chunks_of(x.size(1)), p.channels(), p.states());
    };
    of.state = made(states);
    if (with_slopes) of.slope = made(slopes);
    for_elements(name, device, numbers, BehindChunks<T>{of});
    for_elements(name, device, x.size(0) * p.states() * p.channels(), BeforeChunks<T>{of});
  }

  void outputs(const View<T, 3>& y, bool add) const {
    for_elements(name, device, chunks * of.p.channels(), Outputs<T>{of, y, add});
  }
};

}  // namespace

template <class Device, class T>
void MovingAverageKernels<Device, T>::forward(const Device& device, const MovingAverages<T>& p,
                                              View<const T, 3> x, View<T, 3> y) {
  Scan<T>(device, p, x, false, 0, false).outputs(y, false);
  if (p.directions() == 2) Scan<T>(device, p, x, true, 1, false).outputs(y, true);
}

template <class Device, class T>
void MovingAverageKernels<Device, T>::backward(const Device& device, const MovingAverages<T>& p,
                                               View<const T, 3> dy, View<T, 3> dx) {
  Scan<T>(device, p, dy, true, 0, false).outputs(dx, false);
  if (p.directions() == 2) Scan<T>(device, p, dy, false, 1, false).outputs(dx, true);
}

template <class Device, class T>
i64 MovingAverageKernels<Device, T>::parts(i64 B, i64 N) {
  return B * chunks_of(N);
}

template <class Device, class T>
void MovingAverageKernels<Device, T>::sums(const Device& device, const MovingAverages<T>& p,
                                           View<const T, 3> x, View<const T, 3> dy,
                                           View<T, 4> ddecay, View<T, 4> dweight) {
  for (i64 set = 0; set < p.directions(); ++set) {
    const Scan<T> scan(device, p, x, set == 1, set, true);
    for_elements(scan.name, device, scan.chunks * p.states() * p.channels(),
                 Products<T>{scan.of, dy, ddecay, dweight});
  }
}

template struct MovingAverageKernels<Cuda, float>;
template struct MovingAverageKernels<Cuda, double>;

}  // namespace weft
