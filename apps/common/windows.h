// Windows of a long run of ids: what a language model reads at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/random.h"
#include "runtime/tensor.h"

namespace weft {

// Windows of N + 1 ids: the first N are read, and each one's successor is the target.
struct Batch {
  Tensor inputs, targets;  // [B, N] i64
};

template <class Id>
Batch windows_at(std::span<const Id> ids, std::span<const std::size_t> begins,
                 std::int64_t length) {
  const auto shifted = [&](std::size_t shift) {
    const Tensor tensor =
        Tensor::empty({static_cast<std::int64_t>(begins.size()), length}, DType::i64);
    std::int64_t* out = tensor.data<std::int64_t>();
    for (const std::size_t begin : begins) {
      const auto window = ids.subspan(begin + shift, static_cast<std::size_t>(length));
      out = std::copy(window.begin(), window.end(), out);
    }
    return tensor;
  };
  return {shifted(0), shifted(1)};
}

// `batch` windows that begin anywhere, each with the same chance: a function of `random` alone.
template <class Id>
Batch random_windows(std::span<const Id> ids, RandomKey random, std::int64_t batch,
                     std::int64_t length) {
  require(ids.size() > static_cast<std::size_t>(length), "windows: {} ids hold no window of {}",
          ids.size(), length + 1);
  const std::uint64_t places = ids.size() - static_cast<std::uint64_t>(length);
  std::vector<std::size_t> begins(static_cast<std::size_t>(batch));
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const Philox words = random.words(i);
    const std::uint64_t word = std::uint64_t{words.word[0]} << 32 | words.word[1];
    begins[i] = static_cast<std::size_t>(word % places);
  }
  return windows_at(ids, begins, length);
}

// All windows of a run in order, as batches: every id but the first is a target once. The last
// window is as long as what is left, and stands in a batch of its own.
template <class Id>
class ConsecutiveWindows {
 public:
  ConsecutiveWindows(std::span<const Id> ids, std::int64_t batch, std::int64_t length)
      : ids_(ids), batch_(batch), length_(length) {
    const auto targets = static_cast<std::int64_t>(ids.size()) - 1;
    windows_ = targets / length;
    full_batches_ = (windows_ + batch - 1) / batch;
    rest_ = targets % length;
  }

  std::int64_t count() const { return full_batches_ + (rest_ > 0 ? 1 : 0); }
  Batch operator[](std::int64_t i) const {
    const bool whole = i < full_batches_;
    const std::int64_t first = whole ? i * batch_ : windows_;
    const std::int64_t last = whole ? std::min(first + batch_, windows_) : windows_ + 1;
    std::vector<std::size_t> begins;
    for (std::int64_t window = first; window < last; ++window) {
      begins.push_back(static_cast<std::size_t>(window * length_));
    }
    return windows_at<Id>(ids_, begins, whole ? length_ : rest_);
  }

 private:
  std::span<const Id> ids_;
  std::int64_t batch_, length_;
  std::int64_t windows_;       // of full length
  std::int64_t full_batches_;  // that hold them
  std::int64_t rest_;          // targets of the last window
};

}  // namespace weft
