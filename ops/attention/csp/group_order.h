// The order of the samples of a group: by value, then by position; NaN last, −0 = +0.
#pragma once

#include <hwy/contrib/sort/vqsort.h>

#include <algorithm>
#include <optional>

#include "ops/attention/csp/csp.h"
#include "runtime/scratch.h"
#include "runtime/simd.h"

namespace weft {

// Finds the order of groups of up to G samples.
template <class T>
class GroupOrder {
 public:
  // Groups up to here are ranked by comparing all with all: no branches, G / lanes vectors a sample.
  static constexpr std::int64_t most_compared = 64;

  explicit GroupOrder(std::int64_t G)
      : compared_(G <= most_compared), buffer_(compared_ ? 1 : G * words) {
    if (!compared_) sorter_.emplace();
  }

  // at[r] = the offset of the sample of rank r among x[0 … size − 1].
  template <class Index>
  void operator()(CspOrder order, const T* x, std::int64_t size, Index* at) const {
    const bool descending = order == CspOrder::descending;
    compared_ ? compare(descending, x, size, at) : sort(descending, x, size, at);
  }

 private:
  // Key and position as one number: an unstable sort of them is a stable one of the keys.
  using Pair = std::conditional_t<sizeof(T) == 4, std::uint64_t, hwy::uint128_t>;
  static constexpr std::int64_t words = sizeof(Pair) / 8;

  template <class Index>
  void sort(bool descending, const T* x, std::int64_t size, Index* at) const {
    auto* const pairs = reinterpret_cast<Pair*>(buffer_.data());
    for (std::int64_t i = 0; i < size; ++i) {
      if constexpr (sizeof(T) == 4) {
        pairs[i] = std::uint64_t{csp_key(descending, x[i])} << 32 | std::uint64_t(i);
      } else {
        pairs[i] = {std::uint64_t(i), csp_key(descending, x[i])};
      }
    }
    (*sorter_)(pairs, std::size_t(size), hwy::SortAscending());
    for (std::int64_t r = 0; r < size; ++r) {
      if constexpr (sizeof(T) == 4) {
        at[r] = static_cast<Index>(pairs[r] & 0xffffffff);
      } else {
        at[r] = static_cast<Index>(pairs[r].lo);
      }
    }
  }

  // The rank of a sample is the number of those before it: lanes are samples i, and j runs.
  template <class Index>
  static void compare(bool descending, const T* x, std::int64_t size, Index* at) {
    namespace hn = simd::hn;
    using Key = hwy::MakeSigned<T>;
    const simd::Tag<Key> d;
    constexpr std::int64_t n = simd::lanes<Key>;
    constexpr auto sign = hwy::MakeUnsigned<T>{1} << (8 * sizeof(T) - 1);
    HWY_ALIGN Key keys[most_compared + n], ranks[most_compared + n];
    for (std::int64_t i = 0; i < size; ++i) {
      keys[i] = static_cast<Key>(csp_key(descending, x[i]) ^ sign);
    }
    std::fill(keys + size, keys + simd::round_up_to_lanes<Key>(size), Key{0});
    for (std::int64_t i = 0; i < size; i += n) {
      const auto own = hn::Load(d, keys + i), position = hn::Iota(d, static_cast<Key>(i));
      const auto counted = [&](auto mask) { return hn::VecFromMask(d, mask); };  // −1 where true
      auto rank = hn::Set(d, static_cast<Key>(i));  // of those before i, less those above it
      for (std::int64_t j = 0; j < i; ++j) {
        rank = hn::Add(rank, counted(hn::Lt(own, hn::Set(d, keys[j]))));
      }
      for (std::int64_t j = i; j < std::min(i + n, size); ++j) {
        const auto other = hn::Set(d, keys[j]);
        const auto tied =
            hn::And(hn::Eq(own, other), hn::Lt(hn::Set(d, static_cast<Key>(j)), position));
        rank = hn::Sub(rank, counted(hn::Or(hn::Lt(other, own), tied)));
      }
      for (std::int64_t j = i + n; j < size; ++j) {
        rank = hn::Sub(rank, counted(hn::Lt(hn::Set(d, keys[j]), own)));
      }
      hn::Store(rank, d, ranks + i);
    }
    for (std::int64_t i = 0; i < size; ++i) at[ranks[i]] = static_cast<Index>(i);
  }

  bool compared_;
  Scratch<std::int64_t> buffer_;
  std::optional<hwy::Sorter> sorter_;
};

}  // namespace weft
