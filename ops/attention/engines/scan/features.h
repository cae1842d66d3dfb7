// Features of the rows of a chunk on the CPU, and their gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention/engines/scan/random_features.h"
#include "ops/attention/engines/scan/scan.h"
#include "runtime/scratch.h"
#include "runtime/simd.h"

namespace weft::scan {

// Rows [rows, E] of queries or keys from position `begin` on of one batch item, their features
// [rows, F], and from gradients [rows, F] the gradient [rows, E].
template <class S>
class FeatureRows {
 public:
  using T = Accumulator<S>;

  FeatureRows(const Scan<S>& p, i64 b, i64 h, Pieces<T>& pieces)
      : feature_(p.feature),
        E_(p.E()),
        offset_(p.offset),
        angle_(p.angle(b)),
        constant_(p.constant),
        random_(p, b, h, pieces) {
    sines_ = pieces.take(scan_chunk);
    cosines_ = pieces.take(scan_chunk);
  }
  static i64 scratch(const Scan<S>& p) { return 2 * scan_chunk + RandomFeatures<S>::scratch(p); }

  // A position's angle is the previous one rotated by one step; a chunk of rotations adds 64
  // roundings.
  void start(i64 begin) {
    begin_ = begin;
    if (feature_ != Feature::cosine) return;
    const double first = angle_ * double(offset_ + begin);
    const double step_sine = std::sin(angle_), step_cosine = std::cos(angle_);
    double sine = std::sin(first), cosine = std::cos(first);
    for (i64 i = 0; i < scan_chunk; ++i) {
      sines_[i] = static_cast<T>(sine);
      cosines_[i] = static_cast<T>(cosine);
      const double next = sine * step_cosine + cosine * step_sine;
      cosine = cosine * step_cosine - sine * step_sine;
      sine = next;
    }
  }

  RandomFeatures<S>& random() { return random_; }

  void of_queries(i64 rows, const T* x, T* phi) {
    if (is_random(feature_)) return random_.of_queries(begin_, rows, x, phi);
    if (feature_ != Feature::exponential) return plain(rows, x, phi);
    for (i64 i = 0; i < rows; ++i) {
      const T most = x[i * E_ + largest(x + i * E_)];
      each(E_, x + i * E_, phi + i * E_, [&](auto value) {
        return simd::exp<T>(hn::Sub(value, hn::Set(simd::Tag<T>{}, most)));
      });
    }
  }

  void of_keys(i64 rows, const T* x, T* phi, Levels<S>& levels) {
    if (is_random(feature_)) return random_.of_keys(rows, x, phi, levels);
    plain(rows, x, phi);
  }

  // Overwrites dphi.
  void gradient_of_queries(i64 rows, const T* x, const T* phi, T* dphi, T* dx) const {
    if (is_random(feature_)) return random_.gradient(rows, x, phi, constant_, dphi, dx);
    plain_gradient(rows, x, phi, dphi, dx);
    if (feature_ != Feature::exponential) return;
    for (i64 i = 0; i < rows; ++i) {  // the largest is subtracted from all
      dx[i * E_ + largest(x + i * E_)] -= simd::dot<T>(phi + i * E_, dphi + i * E_, E_);
    }
  }
  void gradient_of_keys(i64 rows, const T* x, const T* phi, T* dphi, T* dx) const {
    if (!is_random(feature_)) return plain_gradient(rows, x, phi, dphi, dx);
    random_.gradient(rows, x, phi, has_levels(feature_) ? T(0) : constant_, dphi, dx);
  }

 private:
  void plain(i64 rows, const T* x, T* phi) const {
    const simd::Tag<T> d;
    const auto zero = hn::Zero(d), one = hn::Set(d, T(1));
    switch (feature_) {
      case Feature::elu:
        return each(rows * E_, x, phi, [&](auto value) {
          return hn::IfThenElse(hn::Gt(value, zero), hn::Add(value, one), simd::exp<T>(value));
        });
      case Feature::relu:
        return each(rows * E_, x, phi, positive);
      case Feature::exponential:
        return each(rows * E_, x, phi, [](auto value) { return simd::exp<T>(value); });
      case Feature::cosine:
        for (i64 i = 0; i < rows; ++i) {
          const auto sine = hn::Set(d, sines_[i]), cosine = hn::Set(d, cosines_[i]);
          T* const to = phi + 2 * i * E_;
          each(E_, x + i * E_, to, [&](auto value) { return hn::Mul(sine, positive(value)); });
          each(E_, x + i * E_, to + E_,
               [&](auto value) { return hn::Mul(cosine, positive(value)); });
        }
        return;
      default:
        break;  // random features depend on the whole row
    }
  }

  void plain_gradient(i64 rows, const T* x, const T* phi, const T* dphi, T* dx) const {
    const simd::Tag<T> d;
    const auto zero = hn::Zero(d), one = hn::Set(d, T(1));
    switch (feature_) {
      case Feature::elu:  // φ > 1 where x > 0, otherwise the slope is φ
        return each(rows * E_, phi, dphi, dx, [&](auto value, auto slope) {
          return hn::Mul(hn::Min(value, one), slope);
        });
      case Feature::relu:
        return each(rows * E_, phi, dphi, dx, [&](auto value, auto slope) {
          return hn::IfThenElseZero(hn::Gt(value, zero), slope);
        });
      case Feature::exponential:
        return each(rows * E_, phi, dphi, dx,
                    [](auto value, auto slope) { return hn::Mul(value, slope); });
      case Feature::cosine:
        for (i64 i = 0; i < rows; ++i) {
          for (i64 e = 0; e < E_; ++e) {
            const T* const slope = dphi + 2 * i * E_ + e;
            const T gradient = sines_[i] * slope[0] + cosines_[i] * slope[E_];
            dx[i * E_ + e] = x[i * E_ + e] > 0 ? gradient : T(0);
          }
        }
        return;
      default: break;
    }
  }

  using Vector = simd::Vector<T>;

  static Vector positive(Vector x) {  // propagates NaN
    return hn::IfThenZeroElse(hn::Le(x, hn::Zero(simd::Tag<T>{})), x);
  }

  template <class Function>
  static void each(i64 count, const T* x, T* y, const Function& f) {
    for (i64 i = 0; i < count; i += simd::lanes<T>) {
      simd::store<T>(f(simd::load<T>(x + i, count - i)), y + i, count - i);
    }
  }
  template <class Function>
  static void each(i64 count, const T* a, const T* b, T* y, const Function& f) {
    for (i64 i = 0; i < count; i += simd::lanes<T>) {
      simd::store<T>(f(simd::load<T>(a + i, count - i), simd::load<T>(b + i, count - i)), y + i,
                     count - i);
    }
  }

  i64 largest(const T* row) const { return std::max_element(row, row + E_) - row; }

  Feature feature_;
  i64 E_, offset_, begin_ = 0;
  double angle_;
  T constant_;
  RandomFeatures<S> random_;
  T *sines_, *cosines_;
};

}  // namespace weft::scan
