// Random features of the rows of a chunk on the CPU, and their gradients. Equations: scan.h.
//
// With t_f = dφ_f (φ_f − w) for exponentials, where w is the constant in φ_f (of queries of the
// kernel softmax, otherwise 0), and ± u − ‖x'‖²/2 the exponent,
//
//     dx' = Σ_f ± t_f Ω_f − (Σ_f t_f) x',     and of relu dx' = Σ_f [u_f > 0] dφ_f Ω_f
//     dx  = √τ dx'
#pragma once

#include "ops/attention/engines/scan/levels.h"
#include "ops/softmax/rows.h"
#include "runtime/tile.h"
#include "runtime/transpose.h"

namespace weft::scan {

// Rows x' [rows, E], features [rows, F].
template <class S>
class RandomFeatures {
 public:
  using T = Accumulator<S>;

  RandomFeatures(const Scan<S>& p, i64 b, i64 h, Pieces<T>& pieces)
      : p_(p), b_(b), h_(h), E_(p.E()), R_(p.R()), F_(p.F()) {
    if (!is_random(p.feature)) return;
    turned_ = pieces.take(E_ * R_);
    weights_ = pieces.take(scan_chunk);
    norm_slopes_ = pieces.take(scan_chunk);
    transpose<T>(R_, E_, {p.omega.data, p.omega.stride(0)}, {turned_, R_});
  }
  static i64 scratch(const Scan<S>& p) {
    return is_random(p.feature) ? p.E() * p.R() + 2 * scan_chunk : 0;
  }

  // w_i, which query i adds to the weight of every key.
  const T* weights() const { return weights_; }

  // The rows begin at position `begin`.
  void of_queries(i64 begin, i64 rows, const T* x, T* phi) {
    project(rows, x, phi);
    for (i64 i = 0; i < rows; ++i) {
      T* const u = phi + i * F_;
      const T half = half_norm(x + i * E_);
      T shift = 0;
      if (p_.levels()) {
        T& most = p_.query_max(b_, h_, begin + i);
        if (!p_.query_max_given) most = top(u, half);
        shift = most;
      }
      const T sum = apply(shift + half, p_.constant, u);
      weights_[i] = p_.feature == Feature::random_exponential ? p_.constant * sum : T(0);
    }
  }

  void of_keys(i64 rows, const T* x, T* phi, Levels<S>& levels) {
    project(rows, x, phi);
    for (i64 j = 0; j < rows; ++j) {
      T* const u = phi + j * F_;
      const T half = half_norm(x + j * E_);
      const T level = p_.levels() ? levels.of_key(j, p_.key_max_given ? T(0) : top(u, half)) : T(0);
      apply(level + half, p_.levels() ? T(0) : p_.constant, u);
    }
  }

  // The level of these keys; `u` has room for their features.
  T level_of(i64 rows, const T* x, T* u) const {
    project(rows, x, u);
    T most = -std::numeric_limits<T>::infinity();
    for (i64 j = 0; j < rows; ++j) most = std::max(most, top(u + j * F_, half_norm(x + j * E_)));
    return most;
  }

  // `constant` is added to the exponential in phi. Overwrites dphi. dx' [rows, E].
  void gradient(i64 rows, const T* x, const T* phi, T constant, T* dphi, T* dx) const {
    const bool relu = p_.feature == Feature::random_relu, both = F_ > R_;
    const auto zero = hn::Zero(d), constants = hn::Set(d, constant);
    for (i64 i = 0; i < rows; ++i) {
      const T* const y = phi + i * F_;
      T* const slope = dphi + i * F_;
      auto sums = zero;
      for (i64 f = 0; f < R_; f += simd::lanes<T>) {
        const i64 rest = R_ - f;
        const auto part = [&](i64 from) {
          const auto value = hn::Sub(simd::load<T>(y + from, rest), constants);
          const auto given = simd::load<T>(slope + from, rest);
          if (relu) return hn::IfThenElseZero(hn::Gt(value, zero), given);
          return first(hn::Mul(value, given), rest);
        };
        auto t = part(f);
        sums = hn::Add(sums, t);
        if (both) {
          const auto other = part(R_ + f);
          sums = hn::Add(sums, other);
          t = hn::Sub(t, other);
        }
        simd::store<T>(t, slope + f, rest);
      }
      norm_slopes_[i] = relu ? T(0) : -simd::sum_of_lanes<T>(sums);
    }
    tile_product<T>(rows, E_, R_, {dphi, F_, 1}, {p_.omega.data, p_.omega.stride(0)}, {dx, E_},
                    false);
    for (i64 i = 0; i < rows; ++i) {
      simd::add_scaled<T>(norm_slopes_[i], x + i * E_, dx + i * E_, E_);
    }
  }

 private:
  using Vector = simd::Vector<T>;
  static constexpr simd::Tag<T> d{};

  // The first `count` lanes; the others become zero.
  static Vector first(Vector x, i64 count) {
    if (count >= simd::lanes<T>) return x;
    return hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count)), x);
  }
  T half_norm(const T* x) const {
    return p_.feature == Feature::random_relu ? T(0) : simd::dot<T>(x, x, E_) / 2;
  }
  T top(const T* u, T half) const {
    return row_max<T>(u, F_) - (p_.feature == Feature::random_hyperbolic ? half : T(0));
  }
  void project(i64 rows, const T* x, T* u) const {
    tile_product<T>(rows, R_, E_, {x, E_, 1}, {turned_, R_}, {u, F_}, false);
    for (i64 i = 0; F_ > R_ && i < rows; ++i) {
      for (i64 f = 0; f < R_; ++f) u[i * F_ + R_ + f] = -u[i * F_ + f];
    }
  }
  // u → φ; returns the sum of φ.
  T apply(T shift, T constant, T* u) const {
    const bool relu = p_.feature == Feature::random_relu;
    const auto shifts = hn::Set(d, shift), constants = hn::Set(d, constant), zero = hn::Zero(d);
    auto sum = zero;
    for (i64 f = 0; f < F_; f += simd::lanes<T>) {
      const auto value = simd::load<T>(u + f, F_ - f);
      const auto power = relu ? hn::IfThenZeroElse(hn::Le(value, zero), value)
                              : simd::exp<T>(hn::Sub(value, shifts));
      const auto phi = hn::Add(power, constants);
      simd::store<T>(phi, u + f, F_ - f);
      sum = hn::Add(sum, first(phi, F_ - f));
    }
    return simd::sum_of_lanes<T>(sum);
  }

  const Scan<S>& p_;
  i64 b_, h_, E_, R_, F_;
  T *turned_ = nullptr, *weights_ = nullptr, *norm_slopes_ = nullptr;
};

}  // namespace weft::scan
