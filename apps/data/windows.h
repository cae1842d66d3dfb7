// Windows of a sequence of ids: the examples of a language model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/data/rows.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

namespace weft {

// Windows of N + 1 ids: the first N are inputs, the last N targets.
struct Batch {
  Tensor inputs, targets;  // [B, N] i64
};

template <class Id>
Batch windows_at(std::span<const Id> ids, std::span<const std::size_t> begins, i64 length) {
  const auto shifted = [&](std::size_t shift) {
    const Tensor tensor = Tensor::empty({static_cast<i64>(begins.size()), length}, DType::i64);
    i64* out = tensor.data<i64>();
    for (const std::size_t begin : begins) {
      const auto window = ids.subspan(begin + shift, static_cast<std::size_t>(length));
      out = std::copy(window.begin(), window.end(), out);
    }
    return tensor;
  };
  return {shifted(0), shifted(1)};
}

// These rows of a batch of windows with uniformly random beginnings: a function of `random` and the
// row alone.
template <class Id>
Batch random_windows(std::span<const Id> ids, RandomKey random, Rows rows, i64 length) {
  require(ids.size() > static_cast<std::size_t>(length), "windows: {} ids hold no window of {}",
          ids.size(), length + 1);
  const std::uint64_t places = ids.size() - static_cast<std::uint64_t>(length);
  std::vector<std::size_t> begins(static_cast<std::size_t>(rows.count));
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const Philox words = random.words(static_cast<std::uint64_t>(rows.first) + i);
    const std::uint64_t word = std::uint64_t{words.word[0]} << 32 | words.word[1];
    begins[i] = static_cast<std::size_t>(word % places);
  }
  return windows_at(ids, begins, length);
}

// Splits a sequence of ids into `batch` contiguous streams of equal length, each in consecutive
// segments of `length` targets. The remainder at the end of a stream is not used. A batch has these
// `rows` of the streams; default: all.
template <class Id>
class ContiguousTexts {
 public:
  ContiguousTexts(std::span<const Id> ids, i64 batch, i64 length)
      : ContiguousTexts(ids, batch, length, batch) {}
  ContiguousTexts(std::span<const Id> ids, i64 batch, i64 length, Rows rows)
      : ids_(ids), length_(length), rows_(rows) {
    apart_ = (static_cast<i64>(ids.size()) - 1) / batch;
    require(
        segments() > 0,
        "--memory: a text of {} ids cannot be cut into {} streams of {} targets; take a smaller "
        "--batch or --length",
        ids.size(), batch, length);
  }

  i64 segments() const { return apart_ / length_; }  // per stream
  Batch operator[](i64 segment) const {
    std::vector<std::size_t> begins;
    for (i64 text = rows_.first; text < rows_.first + rows_.count; ++text) {
      begins.push_back(static_cast<std::size_t>(text * apart_ + segment * length_));
    }
    return windows_at<Id>(ids_, begins, length_);
  }

 private:
  std::span<const Id> ids_;
  i64 length_;
  Rows rows_;
  i64 apart_;  // distance between the beginnings of two streams
};

// All consecutive windows of a sequence, in batches: every id but the first is a target once. The
// last window holds the remainder and has a batch of its own.
template <class Id>
class ConsecutiveWindows {
 public:
  ConsecutiveWindows(std::span<const Id> ids, i64 batch, i64 length)
      : ids_(ids), batch_(batch), length_(length) {
    const auto targets = static_cast<i64>(ids.size()) - 1;
    windows_ = targets / length;
    full_batches_ = (windows_ + batch - 1) / batch;
    rest_ = targets % length;
  }

  i64 count() const { return full_batches_ + (rest_ > 0 ? 1 : 0); }
  Batch operator[](i64 i) const {
    const bool whole = i < full_batches_;
    const i64 first = whole ? i * batch_ : windows_;
    const i64 last = whole ? std::min(first + batch_, windows_) : windows_ + 1;
    std::vector<std::size_t> begins;
    for (i64 window = first; window < last; ++window) {
      begins.push_back(static_cast<std::size_t>(window * length_));
    }
    return windows_at<Id>(ids_, begins, whole ? length_ : rest_);
  }

 private:
  std::span<const Id> ids_;
  i64 batch_, length_;
  i64 windows_;       // number of windows of full length
  i64 full_batches_;  // number of their batches
  i64 rest_;          // targets of the last window
};

}  // namespace weft
