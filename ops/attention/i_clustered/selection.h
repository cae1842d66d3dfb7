// The k largest of scores that come tile by tile, for several clusters at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/scratch.h"
#include "runtime/simd.h"

namespace weft {

// Scores come as zᵀ [keys, width], clusters in the lanes, keys in rising order. A cluster gathers
// up to 2k candidates; when they are 2k, the k best remain, and the least of these is from then on
// what a score must exceed: so ties go to the lowest key, and of S keys in random order about
// k log(S/k) are looked at more than once.
template <class T>
class Selection {
 public:
  Selection(std::int64_t width, std::int64_t k)
      : k_(k),
        width_(width),
        numbers_(width + width * 4 * k),
        counts_(width),
        threshold_(numbers_.data()),
        candidates_(reinterpret_cast<Candidate*>(threshold_ + width)) {
    start();
  }

  void start() {
    std::fill(threshold_, threshold_ + width_, -std::numeric_limits<T>::infinity());
    std::fill(counts_.data(), counts_.data() + width_, 0);
  }

  void add(const T* z, std::int64_t first_key, std::int64_t keys) {
    namespace hn = simd::hn;
    const simd::Tag<T> d;
    for (std::int64_t lane = 0; lane < width_; lane += simd::lanes<T>) {
      auto best = hn::LoadU(d, z + lane);
      for (std::int64_t j = 1; j < keys; ++j) {
        best = hn::Max(best, hn::LoadU(d, z + j * width_ + lane));
      }
      if (hn::AllFalse(d, hn::Gt(best, hn::LoadU(d, threshold_ + lane)))) continue;
      for (std::int64_t j = 0; j < keys; ++j) {
        const T* const row = z + j * width_ + lane;
        const auto above = hn::Gt(hn::LoadU(d, row), hn::LoadU(d, threshold_ + lane));
        std::uint64_t bits = 0;
        hn::StoreMaskBits(d, above, reinterpret_cast<std::uint8_t*>(&bits));
        for (; bits != 0; bits &= bits - 1) {
          const int i = std::countr_zero(bits);
          push(lane + i, row[i], static_cast<std::int32_t>(first_key + j));
        }
      }
    }
  }

  // The chosen keys of one cluster in rising order, all of them among 0 … keys − 1, and −1 behind
  // them up to k.
  void finish(std::int64_t cluster, std::int64_t keys, std::int32_t* to) {
    if (counts_.data()[cluster] > k_) prune(cluster);
    const std::int64_t wanted = std::min(k_, keys);
    std::int64_t count = counts_.data()[cluster];
    for (std::int64_t t = 0; t < count; ++t) to[t] = candidates_[cluster * 2 * k_ + t].key;
    std::sort(to, to + count);
    // Scores of −∞ and NaN are no candidates: the lowest keys fill up.
    for (std::int32_t key = 0; count < wanted; ++key) {
      std::int32_t* const place = std::lower_bound(to, to + count, key);
      if (place < to + count && *place == key) continue;
      std::copy_backward(place, to + count, to + count + 1);
      *place = key;
      ++count;
    }
    std::fill(to + count, to + k_, -1);
  }

 private:
  struct Candidate {
    T score;
    std::int32_t key;
  };
  static_assert(sizeof(Candidate) == 2 * sizeof(T));

  void push(std::int64_t cluster, T score, std::int32_t key) {
    std::int32_t& count = counts_.data()[cluster];
    candidates_[cluster * 2 * k_ + count] = {score, key};
    if (++count == 2 * k_) prune(cluster);
  }

  void prune(std::int64_t cluster) {
    Candidate* const from = candidates_ + cluster * 2 * k_;
    std::nth_element(from, from + k_ - 1, from + counts_.data()[cluster],
                     [](const Candidate& a, const Candidate& b) {
                       return a.score > b.score || (a.score == b.score && a.key < b.key);
                     });
    threshold_[cluster] = from[k_ - 1].score;
    counts_.data()[cluster] = static_cast<std::int32_t>(k_);
  }

  std::int64_t k_, width_;
  Scratch<T> numbers_;
  Scratch<std::int32_t> counts_;
  T* threshold_;
  Candidate* candidates_;
};

}  // namespace weft
