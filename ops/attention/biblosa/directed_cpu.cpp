// CPU kernels of directed.h. A strip is a vector of features of one block: its rows are packed
// first, since rows of the sequence are far apart, often by a power of two.
#include <algorithm>
#include <numbers>

#include "ops/attention/biblosa/directed_kernels.h"
#include "ops/attention/by_type.h"
#include "runtime/pack.h"
#include "runtime/parallel.h"
#include "runtime/scratch.h"

namespace weft {
namespace {

constexpr i64 rows_together = 4;  // that share the loads of a key

// exp(2 x / 5), clamped so that products of two are finite.
template <class T>
HWY_INLINE Pack<T> power(Pack<T> x) {
  namespace hn = simd::hn;
  const simd::Tag<T> d;
  const auto most = hn::Set(d, by_type<T>(T(80), T(700))), least = hn::Neg(most);
  const auto scaled = (x * Pack<T>(0.4)).vector();  // the second operands propagate a NaN
  return exp(Pack<T>(hn::Max(least, hn::Min(most, scaled))));
}

template <class T>
struct Weight {
  Pack<T> q, w;

  HWY_INLINE Weight(Pack<T> key, Pack<T> query)
      : q(Pack<T>(1.0) / (Pack<T>(1.0) + key * query)),
        w(exp2(q * Pack<T>(-10 * std::numbers::log2e))) {}
};

// Features first … first + width − 1 of the `count` valid positions of a block.
template <class T>
struct Strip {
  static constexpr i64 lanes = Pack<T>::lanes;

  const Directed<T>& p;
  i64 b, begin, count, first, width;
  T* memory;  // of its columns

  Strip(const Directed<T>& problem, i64 item, i64 t, i64 feature, T* columns)
      : p(problem),
        b(item),
        begin(p.blocks.begin(t)),
        count(p.blocks.count(item, t)),
        first(feature),
        width(std::min(lanes, p.C() - feature)),
        memory(columns) {}

  T* column(i64 number) const { return memory + number * count * lanes; }
  Pack<T> at(i64 number, i64 i) const { return Pack<T>::load(column(number) + i * lanes); }
  void set(i64 number, i64 i, Pack<T> x) const { x.store(column(number) + i * lanes); }
  Pack<T> of(const View<const T, 3>& x, i64 i, i64 offset = 0) const {
    return Pack<T>::load(&x(b, begin + i, offset + first), width);
  }
  void put(const View<T, 3>& x, i64 i, Pack<T> value, i64 offset = 0) const {
    value.store(&x(b, begin + i, offset + first), width);
  }

  // Calls f<rows>(i, j begin, j end): queries i … i + rows − 1 see these keys; every pair is in one
  // call.
  template <class F>
  HWY_INLINE void each_range(const F& f) const {
    for (i64 i = 0; i < count; i += rows_together) {
      const i64 end = std::min(i + rows_together, count);
      if (end - i == rows_together) {
        p.later ? f.template operator()<rows_together>(i, end, count)
                : f.template operator()<rows_together>(i, i64{0}, i);
      }
      for (i64 row = i; row < end; ++row) {
        const bool alone = end - i < rows_together;
        p.later ? f.template operator()<1>(row, row + 1, alone ? count : end)
                : f.template operator()<1>(row, alone ? i64{0} : i, row);
      }
    }
  }
};

// f(strip) for all strips, with scratch for `columns` columns.
template <class T, class F>
void each_strip(const Directed<T>& p, i64 columns, const F& f) {
  const i64 lanes = Pack<T>::lanes, strips = (p.C() + lanes - 1) / lanes, size = p.blocks.size;
  const i64 n = (p.N() + size - 1) / size, rows = std::min(size, p.N()), calls = p.B() * n * strips;
  const ThreadScratch<T> memory(calls, columns * rows * lanes);
  parallel_for(calls, 16 * lanes * rows * rows, [&](i64 call) {
    const i64 block = call / strips;
    f(Strip<T>(p, block / n, block % n, call % strips * lanes, memory.mine()));
  });
}

// Zeros in the rows of block t beyond the length.
template <class T>
void clear(const Strip<T>& strip, const View<T, 3>& x, i64 offset = 0) {
  const Blocks& blocks = strip.p.blocks;
  const i64 end = std::min(strip.begin + blocks.size, blocks.positions) - strip.begin;
  for (i64 i = strip.count; i < end; ++i) strip.put(x, i, 0.0, offset);
}

}  // namespace

template <class Device, class T>
void DirectedKernels<Device, T>::forward(const Device&, const Directed<T>& p, View<T, 3> s,
                                         View<T, 3> sums) {
  enum { keys, queries, values, totals, weighted, columns };
  each_strip(p, columns, [&](const Strip<T>& strip) {
    for (i64 i = 0; i < strip.count; ++i) {
      strip.set(keys, i, power(strip.of(p.scores, i)));
      strip.set(queries, i, power(strip.of(p.scores, i, p.C())));
      strip.set(values, i, strip.of(p.h, i));
      strip.set(totals, i, 0.0);
      strip.set(weighted, i, 0.0);
    }
    strip.each_range([&]<i64 rows>(i64 i, i64 j, i64 end) {
      simd::Vector<T> query[rows], total[rows], sum[rows];
      for (i64 r = 0; r < rows; ++r) {
        query[r] = strip.at(queries, i + r).vector();
        total[r] = strip.at(totals, i + r).vector();
        sum[r] = strip.at(weighted, i + r).vector();
      }
      for (; j < end; ++j) {
        const Pack<T> key = strip.at(keys, j), value = strip.at(values, j);
        for (i64 r = 0; r < rows; ++r) {
          const Weight<T> weight(key, query[r]);
          total[r] = (total[r] + weight.w).vector();
          sum[r] = (sum[r] + weight.w * value).vector();
        }
      }
      for (i64 r = 0; r < rows; ++r) {
        strip.set(totals, i + r, total[r]);
        strip.set(weighted, i + r, sum[r]);
      }
    });
    for (i64 i = 0; i < strip.count; ++i) {
      const bool sees = p.later ? i + 1 < strip.count : i > 0;
      const Pack<T> total = strip.at(totals, i);
      strip.put(sums, i, total);
      strip.put(s, i, sees ? strip.at(weighted, i) / total : Pack<T>(0.0));
    }
    clear(strip, s);
    clear(strip, sums);
  });
}

template <class Device, class T>
void DirectedKernels<Device, T>::backward(const Device&, const Directed<T>& p, View<const T, 3> s,
                                          View<const T, 3> sums, View<const T, 3> ds,
                                          View<T, 3> dscores, View<T, 3> dh) {
  enum { keys, queries, values, means, shares, dkeys, dqueries, dvalues, columns };
  each_strip(p, columns, [&](const Strip<T>& strip) {
    for (i64 i = 0; i < strip.count; ++i) {
      const bool sees = p.later ? i + 1 < strip.count : i > 0;
      strip.set(keys, i, power(strip.of(p.scores, i)));
      strip.set(queries, i, power(strip.of(p.scores, i, p.C())));
      strip.set(values, i, strip.of(p.h, i));
      strip.set(means, i, strip.of(s, i));
      strip.set(shares, i, sees ? strip.of(ds, i) / strip.of(sums, i) : Pack<T>(0.0));
      for (const i64 gradient : {dkeys, dqueries, dvalues}) strip.set(gradient, i, 0.0);
    }
    strip.each_range([&]<i64 rows>(i64 i, i64 j, i64 end) {
      simd::Vector<T> query[rows], mean[rows], share[rows], dquery[rows];
      for (i64 r = 0; r < rows; ++r) {
        query[r] = strip.at(queries, i + r).vector();
        mean[r] = strip.at(means, i + r).vector();
        share[r] = strip.at(shares, i + r).vector();
        dquery[r] = strip.at(dqueries, i + r).vector();
      }
      for (; j < end; ++j) {
        const Pack<T> key = strip.at(keys, j), value = strip.at(values, j);
        Pack<T> dkey = strip.at(dkeys, j), dvalue = strip.at(dvalues, j);
        for (i64 r = 0; r < rows; ++r) {
          const Weight<T> weight(key, query[r]);
          const Pack<T> gradient = weight.w * Pack<T>(share[r]);
          const Pack<T> slope = Pack<T>(4.0) * weight.q * (Pack<T>(1.0) - weight.q);
          const Pack<T> dy = gradient * (value - Pack<T>(mean[r])) * slope;
          dvalue = dvalue + gradient;
          dkey = dkey + dy;
          dquery[r] = (Pack<T>(dquery[r]) + dy).vector();
        }
        strip.set(dkeys, j, dkey);
        strip.set(dvalues, j, dvalue);
      }
      for (i64 r = 0; r < rows; ++r) strip.set(dqueries, i + r, dquery[r]);
    });
    for (i64 i = 0; i < strip.count; ++i) {
      strip.put(dscores, i, strip.at(dkeys, i));
      strip.put(dscores, i, strip.at(dqueries, i), p.C());
      strip.put(dh, i, strip.at(dvalues, i));
    }
    clear(strip, dscores);
    clear(strip, dscores, p.C());
    clear(strip, dh);
  });
}

template struct DirectedKernels<Cpu, float>;
template struct DirectedKernels<Cpu, double>;

}  // namespace weft
