// Sorts many lists at once: rows are positions, lanes are lists, and nothing branches on a value.
//
// Bitonic merge sort (K. E. Batcher, "Sorting networks and their applications", AFIPS 1968), in
// which every exchange puts the smaller element first. Two sorted runs of s positions become one by
//
//     exchange (i, 2s − 1 − i), i < s;    then (i, i + k) inside every 2k, for k = s/2, s/4, …, 1
//
// Several steps at a time are done in registers: the 2^S positions  i + j k, j < 2^S, are closed
// under the steps 2^(S−1) k, …, 2k, k; if the first step is the mirrored one, the upper half of
// them starts from k − 1 − i instead of i.
#pragma once

#include <bit>
#include <limits>

#include "runtime/simd.h"

namespace weft {

// csp_key of these samples as signed numbers.
template <class T, class V>
HWY_INLINE auto csp_keys(bool descending, V x) {
  namespace hn = simd::hn;
  const hn::Rebind<T, simd::Tag<i64>> d;
  const hn::RebindToSigned<decltype(d)> whole;
  using Key = hwy::MakeSigned<T>;
  const auto bits = hn::BitCast(whole, hn::Add(x, hn::Zero(d)));  // −0 + 0 = +0
  const auto least = hn::Set(whole, std::numeric_limits<Key>::min());
  const auto up = hn::Xor(bits, hn::AndNot(least, hn::BroadcastSignBit(bits)));
  const auto key = descending ? hn::Not(up) : up;
  return hn::IfThenElse(hn::RebindMask(whole, hn::IsNaN(x)),
                        hn::Set(whole, std::numeric_limits<Key>::max()), key);
}

// The lanes of one position: key and offset, for f32 in one number.
template <class T>
struct NetworkRow;

template <>
struct NetworkRow<float> {
  static constexpr i64 words = simd::lanes<i64>;
  simd::Vector<i64> order;

  static HWY_INLINE NetworkRow of(bool descending, const float* x, i64 offset) {
    namespace hn = simd::hn;
    const simd::Tag<i64> d;
    const auto keys = csp_keys<float>(descending, hn::Load(hn::Rebind<float, decltype(d)>{}, x));
    return {hn::Or(hn::ShiftLeft<32>(hn::PromoteTo(d, keys)), hn::Set(d, offset))};
  }
  static i64 offset_in(const i64* at, i64 lane) { return at[lane] & 0xffffffff; }
  static HWY_INLINE NetworkRow load(const i64* at) {
    return {simd::hn::Load(simd::Tag<i64>{}, at)};
  }
  HWY_INLINE void store(i64* at) const { simd::hn::Store(order, simd::Tag<i64>{}, at); }
  static HWY_INLINE void exchange(NetworkRow& low, NetworkRow& high) {
    const auto least = simd::hn::Min(low.order, high.order);
    high.order = simd::hn::Max(low.order, high.order);
    low.order = least;
  }
};

template <>
struct NetworkRow<double> {
  static constexpr i64 words = 2 * simd::lanes<i64>;
  simd::Vector<i64> key, offset;

  static HWY_INLINE NetworkRow of(bool descending, const double* x, i64 at) {
    namespace hn = simd::hn;
    const auto own = hn::Load(simd::Tag<double>{}, x);
    return {csp_keys<double>(descending, own), hn::Set(simd::Tag<i64>{}, at)};
  }
  static i64 offset_in(const i64* at, i64 lane) { return at[words / 2 + lane]; }
  static HWY_INLINE NetworkRow load(const i64* at) {
    const simd::Tag<i64> d;
    return {simd::hn::Load(d, at), simd::hn::Load(d, at + words / 2)};
  }
  HWY_INLINE void store(i64* at) const {
    const simd::Tag<i64> d;
    simd::hn::Store(key, d, at);
    simd::hn::Store(offset, d, at + words / 2);
  }
  static HWY_INLINE void exchange(NetworkRow& low, NetworkRow& high) {
    namespace hn = simd::hn;
    const auto later = hn::And(hn::Eq(high.key, low.key), hn::Lt(high.offset, low.offset));
    const auto wrong = hn::Or(hn::Lt(high.key, low.key), later);
    const NetworkRow least{hn::IfThenElse(wrong, high.key, low.key),
                           hn::IfThenElse(wrong, high.offset, low.offset)};
    high = {hn::IfThenElse(wrong, low.key, high.key),
            hn::IfThenElse(wrong, low.offset, high.offset)};
    low = least;
  }
};

template <class T>
class Network {
  using Row = NetworkRow<T>;
  static constexpr int most = 3;  // steps at a time

 public:
  // Sorts rows[0 … places − 1], places a power of two of at least `least`; rows from `size` on hold
  // the largest number.
  static constexpr i64 least = 1 << most;
  static void sort(i64* rows, i64 places, i64 size) {
    if (size <= 0) return;
    if (places == least) return sort_registers(rows);
    sort(rows, places / 2, size);
    sort(rows + places / 2 * Row::words, places / 2, size - places / 2);
    if (size > places / 2) merge<true>(rows, places, size);
  }

 private:
  template <bool mirrored>
  static void merge(i64* rows, i64 places, i64 size) {
    if (size <= (mirrored ? places / 2 : 0)) return;
    const int steps = std::countr_zero(std::uint64_t(places)), passes = (steps + most - 1) / most;
    const int S = (steps + passes - 1) / passes;
    const i64 k = places >> S;
    switch (S) {
      case 1:
        pass<1, mirrored>(rows, k);
        break;
      case 2:
        pass<2, mirrored>(rows, k);
        break;
      default:
        pass<most, mirrored>(rows, k);
    }
    if (k == 1) return;
    for (i64 j = 0; j < places; j += k) merge<false>(rows + j * Row::words, k, size - j);
  }

  template <int S, bool mirrored>
  static void pass(i64* rows, i64 k) {
    constexpr int count = 1 << S;
    const i64 apart = k * Row::words;
    for (i64 i = 0; i < k; ++i) {
      i64* const low = rows + i * Row::words;
      i64* const high = mirrored ? rows + (k - 1 - i) * Row::words : low;
      Row row[count];
#pragma GCC unroll 8
      for (int j = 0; j < count; ++j) row[j] = Row::load((j < count / 2 ? low : high) + j * apart);
      if constexpr (mirrored) {
        mirror<count>(row);
        clean<count / 4, count>(row);
      } else {
        clean<count / 2, count>(row);
      }
#pragma GCC unroll 8
      for (int j = 0; j < count; ++j) row[j].store((j < count / 2 ? low : high) + j * apart);
    }
  }

  static HWY_INLINE void sort_registers(i64* rows) {
    Row row[least];
#pragma GCC unroll 8
    for (int j = 0; j < least; ++j) row[j] = Row::load(rows + j * Row::words);
    sort_run<least>(row);
#pragma GCC unroll 8
    for (int j = 0; j < least; ++j) row[j].store(rows + j * Row::words);
  }
  template <int count>
  static HWY_INLINE void sort_run(Row* row) {
    if constexpr (count > 1) {
      sort_run<count / 2>(row);
      sort_run<count / 2>(row + count / 2);
      mirror<count>(row);
      clean<count / 4, count>(row);
    }
  }
  template <int count>
  static HWY_INLINE void mirror(Row* row) {
#pragma GCC unroll 8
    for (int j = 0; j < count / 2; ++j) Row::exchange(row[j], row[count - 1 - j]);
  }
  template <int k, int count>
  static HWY_INLINE void clean(Row* row) {
    if constexpr (k > 0) {
#pragma GCC unroll 8
      for (int j = 0; j < count; ++j) {
        if ((j & k) == 0) Row::exchange(row[j], row[j + k]);
      }
      clean<k / 2, count>(row);
    }
  }
};

}  // namespace weft
