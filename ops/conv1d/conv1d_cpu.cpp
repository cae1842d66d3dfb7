#include <algorithm>
#include <limits>
#include <vector>

#include "ops/conv1d/blocks.h"
#include "ops/conv1d/conv1d.h"
#include "ops/conv1d/halves.h"
#include "runtime/row_sums.h"
#include "runtime/scratch.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft {
namespace {

using conv1d::block, conv1d::Block, conv1d::Blocks, conv1d::Sizes, conv1d::sizes_of;

// How the products are computed: as one, or, if the taps can be halved twice and there are enough
// rows to pay for the sums of the taps, as nine with a quarter of the rows and of the taps.
struct Products {
  explicit Products(const Sizes& s)
      : halved(s.W % 4 == 0 && s.B * s.N >= block),
        parts(halved ? halves::parts : 1),
        step(halved ? 4 : 1),
        taps(s.W / step) {}
  i64 rows(i64 count) const { return (count + step - 1) / step; }
  bool halved;
  i64 parts, step, taps;
};

// Row t of a sequence [N, width], counted from `begin`: zeros outside of it.
template <class T>
struct RowOf {
  const T* sequence;
  i64 N, width, begin;
  const T* zeros;
  const T* operator()(i64 t) const {
    t += begin;
    return t < 0 || t >= N ? zeros : sequence + t * width;
  }
};

template <class T, class Source>
void gather_rows(i64 rows, i64 width, const Source& row_of, T* to) {
  for (i64 t = 0; t < rows; ++t) std::copy_n(row_of(t), width, to + t * width);
}

// Windows of `rows` rows, for each part of the product; pairs, likewise.
template <class T, class Source>
void start_windows(const Products& p, i64 rows, i64 width, const Source& row_of, T* to) {
  const i64 reached = p.rows(rows) + p.taps - 1;
  p.halved ? halves::split_windows(reached, width, row_of, to)
           : gather_rows(reached, width, row_of, to);
}
template <class T, class Source>
void start_pairs(const Products& p, i64 rows, i64 width, const Source& row_of, T* to) {
  p.halved ? halves::split_pairs(p.rows(rows), width, row_of, to)
           : gather_rows(rows, width, row_of, to);
}
// The parts of `rows` rows, merged as by halves::merge.
template <class T, class Put>
void finish(const Products& p, i64 rows, i64 width, const T* from, const Put& put) {
  if (p.halved) return halves::merge(p.rows(rows), width, from, put);
  for (i64 t = 0; t < rows; ++t) {
    each_pack<T>(width,
                 [&](i64 e, i64 n) { put(t, e, n, Pack<T>::load(from + t * width + e, n)); });
  }
}

// windows ∗ taps, for each part: z [parts, rows, m].
template <class T>
void correlate(const Products& p, i64 rows, i64 n, i64 m, const T* windows, const T* taps, T* z) {
  const i64 each = p.rows(rows);
  for (i64 i = 0; i < p.parts; ++i) {
    tile_product<T>(each, m, p.taps * n, {windows + i * (each + p.taps - 1) * n, n, 1},
                    {taps + i * p.taps * n * m, m}, {z + i * each * m, m}, false);
  }
}

}  // namespace

template <class Device, class T>
void CausalConv1dKernels<Device, T>::forward(const Device&, const CausalConv1d::Saved& saved,
                                             const Tensor& offset, bool relu,
                                             const Tensor& result) {
  const Sizes s = sizes_of(saved.x, saved.weight);
  const Blocks blocks(s);
  const Products p(s);
  const T *const x = saved.x.data<T>(), *const bias = offset.data<T>();
  T* const y = result.data<T>();
  const std::vector<T> zeros(static_cast<std::size_t>(s.n));
  const Scratch<T> taps(p.parts * p.taps * s.n * s.m);
  const RowOf<T> weight{saved.weight.data<T>(), s.W, s.n * s.m, 0, nullptr};
  start_pairs(p, s.W, s.n * s.m, weight, taps.data());
  const Pack<T> least(relu ? 0 : -std::numeric_limits<double>::infinity());  // a NaN is kept
  const i64 most = p.rows(std::min(s.N, block)), reached = most + p.taps - 1;
  const i64 window_room = p.parts * reached * s.n;
  const ThreadScratch<T> held(blocks.count, window_room + p.parts * most * s.m);
  parallel_for(blocks.count, [&](i64 i) {
    const Block at(blocks, i);
    T *const windows = held.mine(), *const z = windows + window_room;
    start_windows(p, at.rows, s.n,
                  RowOf<T>{x + at.sequence * s.n, s.N, s.n, at.begin - s.W + 1, zeros.data()},
                  windows);
    correlate<T>(p, at.rows, s.n, s.m, windows, taps.data(), z);
    finish<T>(p, at.rows, s.m, z, [&](i64 t, i64 e, i64 n, auto sum) {
      if (t >= at.rows) return;
      const auto value = sum + Pack<T>::load(bias + e, n);
      where(value < least, least, value).store(y + (at.at() + t) * s.m + e, n);
    });
  });
}

namespace {

// The scratch of one block of positions, in numbers.
struct GradientRoom {
  GradientRoom(const Sizes& s, const Products& p) {
    const i64 each = p.rows(std::min(s.N, block)), reached = each + p.taps - 1;
    dz = std::min(p.step * each + s.W - 1, s.N) * s.m;
    windows = p.parts * reached * std::max(s.n, s.m);
    pairs = p.parts * each * s.m;
    z = p.parts * each * s.n;
  }
  i64 count() const { return dz + windows + pairs + z; }
  i64 dz, windows, pairs, z;
};

// back[j, o, i] = W_{W−1−j}[i, o]: the weights of the product that gives dx.
template <class T>
Scratch<T> turned(const Sizes& s, const T* weight) {
  Scratch<T> back(s.W * s.n * s.m);
  for (i64 j = 0; j < s.W; ++j) {
    transpose<T>(s.n, s.m, {weight + (s.W - 1 - j) * s.n * s.m, s.m},
                 {back.data() + j * s.n * s.m, s.n});
  }
  return back;
}

}  // namespace

template <class Device, class T>
std::array<Tensor, 3> CausalConv1dKernels<Device, T>::backward(const Device&,
                                                               const CausalConv1d::Saved& saved,
                                                               const Tensor& gradient) {
  const Sizes s = sizes_of(saved.x, saved.weight);
  const Blocks blocks(s);
  const Products p(s);
  const T *const x = saved.x.data<T>(), *const dy = gradient.data<T>();
  const T* const y = saved.y.defined() ? saved.y.data<T>() : nullptr;
  const Tensor inner = Tensor::empty_like(saved.x), dweight = Tensor::empty_like(saved.weight);
  T* const dx = inner.data<T>();
  const std::vector<T> zeros(static_cast<std::size_t>(std::max(s.n, s.m)));
  const Scratch<T> back = turned<T>(s, saved.weight.data<T>());
  const i64 part_size = p.taps * s.n * s.m, count = p.parts * part_size;
  const Scratch<T> taps(count);
  start_pairs(p, s.W, s.n * s.m, RowOf<T>{back.data(), s.W, s.n * s.m, 0, nullptr}, taps.data());
  const Tensor sums = Tensor::empty({count + s.m}, dtype_of<T>);  // dW by parts, followed by db
  const GradientRoom room(s, p);
  const ThreadScratch<T> held(row_parts(blocks.count, 1), room.count());
  const auto gather = [&](i64 i, i64, T* part) {
    if (blocks.count == 0) return;
    const Block at(blocks, i);
    const i64 each = p.rows(at.rows), reached = each + p.taps - 1;
    // dz where y > 0, up to where the windows of the last rows end.
    const i64 known = std::min(p.step * each + s.W - 1, s.N - at.begin);
    T *const masked = held.mine(), *const windows = masked + room.dz;
    T *const pairs = windows + room.windows, *const z = pairs + room.pairs;
    const T* dz = dy + at.at() * s.m;
    if (y != nullptr) {
      conv1d::mask_gradient(known * s.m, dz, y + at.at() * s.m, masked);
      dz = masked;
    }
    add_rows(at.rows, s.m, dz, part + count);
    const RowOf<T> dz_rows{dz, known, s.m, 0, zeros.data()};
    start_windows(p, at.rows, s.m, dz_rows, windows);
    correlate<T>(p, at.rows, s.m, s.n, windows, taps.data(), z);
    finish<T>(p, at.rows, s.n, z, [&](i64 t, i64 e, i64 n, auto sum) {
      if (t < at.rows) sum.store(dx + (at.at() + t) * s.n + e, n);
    });

    start_pairs(p, at.rows, s.m, RowOf<T>{dz, at.rows, s.m, 0, zeros.data()}, pairs);
    start_windows(p, at.rows, s.n,
                  RowOf<T>{x + at.sequence * s.n, s.N, s.n, at.begin - s.W + 1, zeros.data()},
                  windows);
    for (i64 k = 0; k < p.parts; ++k) {
      tile_product<T>(p.taps * s.n, s.m, each, {windows + k * reached * s.n, 1, s.n},
                      {pairs + k * each * s.m, s.m}, {part + k * part_size, s.m}, true);
    }
  };
  row_sums<T>(blocks.count, 1, count + s.m, sums.data<T>(), gather);
  finish<T>(p, s.W, s.n * s.m, sums.data<T>(), [&](i64 t, i64 e, i64 n, auto sum) {
    sum.store(dweight.data<T>() + t * s.n * s.m + e, n);
  });
  return {inner, dweight, sums.slice(0, count, count + s.m)};
}

template struct CausalConv1dKernels<Cpu, float>;
template struct CausalConv1dKernels<Cpu, double>;

}  // namespace weft
