// The k largest of each row of scores, on the CPU. Scores arrive tile by tile, in the order of
// their keys.
//
// Larger comes first, NaN is the largest, at equal scores the lower key comes first. A row collects
// up to 2k candidates. When it is full, the k first are kept, and the score of the last of them is
// the threshold: scores that do not exceed it are skipped, a vector at a time. Of S keys in random
// order some k log(S / k) are examined more than once.
//
// LargestOfRow has a row along the vectors, LargestOfLanes a row in each lane.
#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include "ops/select/ordered_code.h"
#include "runtime/scratch.h"
#include "runtime/simd.h"

namespace weft {

template <class T>
struct Candidate {
  Bits<T> code;  // of the score
  std::int32_t key;
};

namespace largest_detail {

namespace hn = simd::hn;

// The threshold before there is one. It skips nothing, and neither does a threshold of NaN: later
// scores then become candidates needlessly.
template <class T>
inline constexpr T no_threshold = std::numeric_limits<T>::quiet_NaN();

template <class T>
bool goes_before(const Candidate<T>& a, const Candidate<T>& b) {
  return a.code > b.code || (a.code == b.code && a.key < b.key);
}

// Moves the k first to the front; returns the threshold.
template <class T>
T cut(Candidate<T>* candidates, i64 held, i64 k) {
  std::nth_element(candidates, candidates + k - 1, candidates + held, goes_before<T>);
  return ordered_value<T>(candidates[k - 1].code);
}

// The keys of the k first in ascending order, padded with −1 if there are fewer.
template <class T>
void write_keys(Candidate<T>* candidates, i64 held, i64 k, std::int32_t* keys, i64 step) {
  if (held > k) cut(candidates, held, k);
  const i64 count = std::min(held, k);
  std::sort(candidates, candidates + count,
            [](const auto& a, const auto& b) { return a.key < b.key; });
  for (i64 t = 0; t < k; ++t) keys[t * step] = t < count ? candidates[t].key : -1;
}

}  // namespace largest_detail

template <class T>
class LargestOfRow {
 public:
  // `room` holds 2k candidates.
  void start(Candidate<T>* room, i64 k) {
    room_ = room, k_ = k, held_ = 0;
    threshold_ = largest_detail::no_threshold<T>;
  }

  void add(const T* scores, i64 first_key, i64 count) {
    namespace hn = simd::hn;
    const simd::Tag<T> d;
    for (i64 j = 0; j < count; j += simd::lanes<T>) {
      const auto passed = hn::Le(simd::load(scores + j, count - j), hn::Set(d, threshold_));
      if (hn::AllTrue(d, passed)) continue;
      const i64 end = std::min(count, j + simd::lanes<T>);
      for (i64 i = j; i < end; ++i) {
        if (!(scores[i] <= threshold_)) insert(scores[i], first_key + i);
      }
    }
  }

  void finish(std::int32_t* keys, i64 step) {
    largest_detail::write_keys(room_, held_, k_, keys, step);
  }

 private:
  void insert(T score, i64 key) {
    room_[held_++] = {ordered_code(score), static_cast<std::int32_t>(key)};
    if (held_ < 2 * k_) return;
    threshold_ = largest_detail::cut(room_, held_, k_);
    held_ = k_;
  }

  Candidate<T>* room_ = nullptr;
  i64 k_ = 0, held_ = 0;
  T threshold_ = 0;
};

// Scores are [keys, width], with rows in the lanes.
template <class T>
class LargestOfLanes {
 public:
  // Elements of scratch of type T for `width` rows.
  static constexpr i64 numbers(i64 width, i64 k) {
    static_assert(sizeof(Candidate<T>) == 2 * sizeof(T));
    return width + width * 4 * k;
  }

  LargestOfLanes(i64 width, i64 k)
      : k_(k),
        width_(width),
        numbers_(numbers(width, k)),
        held_(width),
        thresholds_(numbers_.data()),
        candidates_(reinterpret_cast<Candidate<T>*>(thresholds_ + width)) {
    std::fill(thresholds_, thresholds_ + width, largest_detail::no_threshold<T>);
    std::fill(held_.data(), held_.data() + width, 0);
  }

  void add(const T* z, i64 first_key, i64 keys) {
    namespace hn = simd::hn;
    const simd::Tag<T> d;
    for (i64 lane = 0; lane < width_; lane += simd::lanes<T>) {
      const auto score = [&](i64 j) { return hn::LoadU(d, z + j * width_ + lane); };
      const auto threshold = hn::LoadU(d, thresholds_ + lane);
      auto passed = hn::Le(score(0), threshold);
      for (i64 j = 1; j < keys; ++j) passed = hn::And(passed, hn::Le(score(j), threshold));
      if (hn::AllTrue(d, passed)) continue;
      for (i64 j = 0; j < keys; ++j) {
        const auto one = hn::Le(score(j), hn::LoadU(d, thresholds_ + lane));
        std::uint64_t bits = 0;
        hn::StoreMaskBits(d, hn::Not(one), reinterpret_cast<std::uint8_t*>(&bits));
        for (; bits != 0; bits &= bits - 1) {
          const i64 row = lane + std::countr_zero(bits);
          insert(row, z[j * width_ + row], static_cast<std::int32_t>(first_key + j));
        }
      }
    }
  }

  void finish(i64 row, std::int32_t* keys) {
    largest_detail::write_keys(candidates_ + row * 2 * k_, held_.data()[row], k_, keys, 1);
  }

 private:
  void insert(i64 row, T score, std::int32_t key) {
    Candidate<T>* const own = candidates_ + row * 2 * k_;
    std::int32_t& held = held_.data()[row];
    own[held++] = {ordered_code(score), key};
    if (held < 2 * k_) return;
    thresholds_[row] = largest_detail::cut(own, held, k_);
    held = static_cast<std::int32_t>(k_);
  }

  i64 k_, width_;
  Scratch<T> numbers_;
  Scratch<std::int32_t> held_;
  T* thresholds_;
  Candidate<T>* candidates_;
};

}  // namespace weft
