// Levels of one batch item and head on the CPU, a chunk at a time: the scales of sums of
// exponential features; see scan.h. If there are none, or one for all keys, the factors are 1 and
// nothing is multiplied.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/attention/engines/scan/scan.h"
#include "runtime/scratch.h"
#include "runtime/simd.h"

namespace weft::scan {

namespace hn = simd::hn;

template <class S>
class Levels {
 public:
  using T = Accumulator<S>;

  Levels(const Scan<S>& p, i64 b, i64 h, Pieces<T>& pieces)
      : p_(p),
        b_(b),
        h_(h),
        rising_(p.levels() && p.causal),
        level_(pieces.take(scan_chunk)),
        in_(pieces.take(scan_chunk)),
        out_(pieces.take(scan_chunk)) {}
  static i64 scratch() { return 3 * scan_chunk; }

  // Sets the level of the sums before position 0.
  void start_at(T level) { first_ = level; }
  void start(i64 begin) {
    begin_ = begin;
    steady_ = true;
    if (rising_) before_ = begin == 0 ? first_ : p_.key_max(b_, h_, begin - 1);
  }
  // The level of key j of the chunk, the largest of whose features is e^top; keys must come in
  // order.
  T of_key(i64 j, T top) {
    if (!p_.causal) return p_.key_max(b_, h_, 0);
    T& level = p_.key_max(b_, h_, begin_ + j);
    if (p_.key_max_given) return level;
    level = std::max(top, j == 0 ? before_ : p_.key_max(b_, h_, begin_ + j - 1));
    return level;
  }
  // Called after the keys. For queries without a key the level is unchanged.
  void load(i64 keys, i64 queries) {
    if (!rising_) return;
    const i64 count = std::max(keys, queries);
    after_ = before_;
    for (i64 i = 0; i < count; ++i) {
      T& level = p_.key_max(b_, h_, begin_ + i);
      if (i >= keys && !p_.key_max_given) level = after_;
      after_ = level_[i] = level;
    }
    steady_ = before_ == after_;
    if (steady_) return;
    for (i64 i = 0; i < count; ++i) {
      in_[i] = std::exp(before_ - level_[i]);
      out_[i] = std::exp(level_[i] - after_);
    }
  }
  T after() const { return after_; }
  bool steady() const { return steady_; }

  // The factor of the sums before the chunk after it, and of those after it before it.
  T carried() const { return steady_ ? T(1) : std::exp(before_ - after_); }
  // e^(before − c_i)
  T in(i64 i) const { return steady_ ? T(1) : in_[i]; }
  // x_i *= e^(before − c_i)
  void fade_in(i64 rows, i64 width, T* x) const { fade(in_, rows, width, x); }
  // x_j *= e^(c_j − after)
  void fade_out(i64 rows, i64 width, T* x) const { fade(out_, rows, width, x); }
  // The pairs of query i with the first keys of the chunk: *= e^(c_j − c_i).
  void fade_pairs(i64 i, i64 keys, T* row) const {
    if (steady_ || level_[0] == level_[i]) return;
    const auto own = hn::Set(simd::Tag<T>{}, level_[i]);
    for (i64 j = 0; j < keys; j += simd::lanes<T>) {
      const auto level = simd::load<T>(level_ + j, keys - j);
      const auto factor = simd::exp<T>(hn::Sub(level, own));
      simd::store<T>(hn::Mul(factor, simd::load<T>(row + j, keys - j)), row + j, keys - j);
    }
  }

 private:
  void fade(const T* factors, i64 rows, i64 width, T* x) const {
    if (steady_) return;
    for (i64 i = 0; i < rows; ++i) {
      for (i64 e = 0; e < width; ++e) x[i * width + e] *= factors[i];
    }
  }

  const Scan<S>& p_;
  i64 b_, h_;
  bool rising_, steady_ = true;
  T *level_, *in_, *out_;
  i64 begin_ = 0;
  T first_ = -std::numeric_limits<T>::infinity(), before_ = first_, after_ = first_;
};

}  // namespace weft::scan
