#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/rotary/kernels.h"
#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 14;  // elements that one task rotates

// Sines and cosines of the angles of successive positions: each is the previous one rotated by θ,
// and every `exact` positions it is computed exactly. 63 rotations add 63 roundings of f64.
class Angles {
 public:
  explicit Angles(const std::vector<double>& theta) : theta_(theta), at_(theta.size()) {
    for (const double angle : theta) step_.push_back({std::cos(angle), std::sin(angle)});
  }

  // Moves to a position, an integer ≥ 0.
  void go_to(i64 position) {
    begin(position / exact * exact);
    while (position_ < position) next();
  }
  void next() {
    if ((position_ + 1) % exact == 0) return begin(position_ + 1);
    for (std::size_t i = 0; i < at_.size(); ++i) {
      const auto [c, s] = at_[i];
      at_[i] = {c * step_[i].cosine - s * step_[i].sine, s * step_[i].cosine + c * step_[i].sine};
    }
    ++position_;
  }

  double cosine(std::size_t i) const { return at_[i].cosine; }
  double sine(std::size_t i) const { return at_[i].sine; }

 private:
  static constexpr i64 exact = 64;
  struct Point {
    double cosine, sine;
  };

  void begin(i64 position) {
    position_ = position;
    for (std::size_t i = 0; i < at_.size(); ++i) {
      const double angle = static_cast<double>(position) * theta_[i];
      at_[i] = {std::cos(angle), std::sin(angle)};
    }
  }

  const std::vector<double>& theta_;
  std::vector<Point> at_, step_;
  i64 position_ = 0;
};

// Rotates the pairs of one head.
template <class S, class T>
void turn(i64 pairs, const T* c, const T* s, const S* x, S* __restrict y) {
  for (i64 i = 0; i < pairs; ++i) {
    const T even = widen(x[2 * i]), odd = widen(x[2 * i + 1]);
    y[2 * i] = convert<S>(c[i] * even - s[i] * odd);
    y[2 * i + 1] = convert<S>(s[i] * even + c[i] * odd);
  }
}

}  // namespace

// A task takes some positions: their sines and cosines are used for all sequences and heads.
template <class Device, class S>
void RotaryKernels<Device, S>::rotate(const Device&, const Rotation& rotation, View<const S, 4> x,
                                      View<S, 4> y) {
  using T = Accumulator<S>;
  const i64 B = x.size(0), H = x.size(2), pairs = x.size(3) / 2;
  std::vector<double> theta(static_cast<std::size_t>(pairs));
  for (i64 i = 0; i < pairs; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(pairs);
    theta[static_cast<std::size_t>(i)] = rotation.sign * std::exp(-share * rotation.log_base);
  }
  const i64 together = std::max<i64>(1, grain / std::max<i64>(1, 2 * B * H * pairs));
  parallel_ranges(x.size(1), together, [&](i64 begin, i64 end) {
    std::vector<T> cosine(theta.size()), sine(theta.size());
    Angles angles(theta);
    for (i64 n = begin; n < end; ++n) {
      n == begin ? angles.go_to(rotation.first + n) : angles.next();
      for (std::size_t i = 0; i < theta.size(); ++i) {
        cosine[i] = static_cast<T>(angles.cosine(i));
        sine[i] = static_cast<T>(angles.sine(i));
      }
      for (i64 b = 0; b < B; ++b) {
        for (i64 h = 0; h < H; ++h) {
          turn(pairs, cosine.data(), sine.data(), &x(b, n, h, 0), &y(b, n, h, 0));
        }
      }
    }
  });
}

template struct RotaryKernels<Cpu, float>;
template struct RotaryKernels<Cpu, double>;
template struct RotaryKernels<Cpu, bf16>;

}  // namespace weft
