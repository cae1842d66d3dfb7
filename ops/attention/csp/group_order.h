// The order of the samples of a group: by value, then by position; NaN last, −0 = +0.
//
// A sample is paired with its key and its offset in the group, so that no two are equal and the
// sort need not be stable.
#pragma once

#include <hwy/contrib/sort/vqsort.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "ops/attention/csp/columns.h"
#include "ops/attention/csp/network.h"
#include "ops/attention/csp/problem.h"
#include "runtime/scratch.h"

namespace weft {

// Computes the order of groups of up to G samples, of some adjacent columns at a time.
template <class T>
class GroupOrder {
 public:
  static constexpr i64 lists = simd::lanes<i64>;
  // Groups whose rows take up to 1 MiB are sorted by a network; longer ones would not stay in
  // cache.
  static constexpr i64 most_in_network = 1024 * 1024 / 8 / NetworkRow<T>::words;

  explicit GroupOrder(i64 G) : buffer_(words(G)) {
    if (G > most_in_network) sorter_.emplace();
  }

  // at[i·at_room + r] = the offset of the sample of rank r among x[i·room + (0 … size − 1)], for
  // each of `count` ≤ lists columns i.
  template <class Index>
  void operator()(CspOrder order, const T* x, i64 room, i64 count, i64 size, Index* at,
                  i64 at_room) const {
    const bool descending = order == CspOrder::descending;
    if (!sorter_) return through_network(descending, x, room, count, size, at, at_room);
    for (i64 i = 0; i < count; ++i) sort(descending, x + i * room, size, at + i * at_room);
  }

 private:
  // Key and offset as one number.
  using Pair = std::conditional_t<std::is_same_v<T, float>, std::uint64_t, hwy::uint128_t>;
  using Row = NetworkRow<T>;

  static constexpr i64 places(i64 size) {
    return std::max<i64>(std::bit_ceil(std::uint64_t(size)), Network<T>::least);
  }

  static constexpr i64 words(i64 G) {
    return G > most_in_network ? G * i64(sizeof(Pair)) / 8 : places(G) * Row::words;
  }

  template <class Index>
  void sort(bool descending, const T* x, i64 size, Index* at) const {
    auto* const pairs = reinterpret_cast<Pair*>(buffer_.data());
    for (i64 i = 0; i < size; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        pairs[i] = std::uint64_t{csp_key(descending, x[i])} << 32 | std::uint64_t(i);
      } else {
        pairs[i] = {std::uint64_t(i), csp_key(descending, x[i])};
      }
    }
    (*sorter_)(pairs, std::size_t(size), hwy::SortAscending());
    for (i64 r = 0; r < size; ++r) {
      if constexpr (std::is_same_v<T, float>) {
        at[r] = static_cast<Index>(pairs[r] & 0xffffffff);
      } else {
        at[r] = static_cast<Index>(pairs[r].lo);
      }
    }
  }

  // Lanes are columns; those from `count` on are unspecified.
  template <class Index>
  void through_network(bool descending, const T* x, i64 room, i64 count, i64 size, Index* at,
                       i64 at_room) const {
    constexpr i64 stripe = 32;
    i64* const rows = buffer_.data();
    HWY_ALIGN T turned[stripe * lists] = {};
    for (i64 n = 0; n < size; n += stripe) {
      const i64 end = std::min(n + stripe, size);
      columns_detail::turn(count, end - n, x + n, room, turned, lists);
      for (i64 r = n; r < end; ++r) {
        Row::of(descending, turned + (r - n) * lists, r).store(rows + r * Row::words);
      }
    }
    const i64 all = places(size);
    std::fill(rows + size * Row::words, rows + all * Row::words, std::numeric_limits<i64>::max());
    Network<T>::sort(rows, all, size);
    for (i64 n = 0; n < size; n += stripe) {
      const i64 end = std::min(n + stripe, size);
      for (i64 i = 0; i < count; ++i) {
        for (i64 r = n; r < end; ++r) {
          at[i * at_room + r] = static_cast<Index>(Row::offset_in(rows + r * Row::words, i));
        }
      }
    }
  }

  Scratch<i64> buffer_;
  std::optional<hwy::Sorter> sorter_;
};

}  // namespace weft
