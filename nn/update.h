// The update rules of optimizer.h for one weight, shared by the devices, and the kernels that apply
// them to all weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/device.h"
#include "runtime/types.h"

namespace weft {

// Quantities of one step, the same for all weights.
struct StepFacts {
  double rate = 0;            // η
  double scale = 1;           // of the gradients, if their norm is too large
  double corrected_rate = 0;  // adam: η / (1 − β₁ᵗ)
  double root = 1;            // adam: 1 / √(1 − β₂ᵗ)
  bool updates = true;        // false: the step changes nothing
};

// A rule is a struct of its options, and `for_weights<T>(facts, matrix)`, which returns the
// function of one weight: w, its gradient, its state.
struct Sgd {
  static constexpr double default_rate = 0.01;
  double momentum = 0, nesterov = 0;

  constexpr void correct(StepFacts&, double) const {}

  template <class T>
  struct Update {
    T rate, scale, momentum, of_gradient, of_velocity;
    constexpr void operator()(T& w, T g) const { w -= rate * (scale * g); }
    constexpr void operator()(T& w, T g, T& v) const {
      const T gradient = scale * g;
      v = momentum * v + gradient;
      w -= rate * (of_gradient * gradient + of_velocity * v);
    }
    constexpr void operator()(T& w, T g, T& v, T&) const { (*this)(w, g, v); }
  };
  // With nesterov the step looks one momentum step ahead.
  template <class T>
  constexpr Update<T> for_weights(const StepFacts& facts, bool) const {
    return {T(facts.rate), T(facts.scale), T(momentum), T(nesterov != 0 ? 1 : 0),
            T(nesterov != 0 ? momentum : 1)};
  }
};

struct Adadelta {
  static constexpr double default_rate = 1;
  double rho = 0.95, epsilon = 1e-7;

  constexpr void correct(StepFacts&, double) const {}

  template <class T>
  struct Update {
    T rate, scale, keep, take, epsilon;
    constexpr void operator()(T& w, T g, T& a, T& b) const {
      const T gradient = scale * g;
      a = keep * a + take * gradient * gradient;
      const T delta = gradient * std::sqrt(b + epsilon) / std::sqrt(a + epsilon);
      w -= rate * delta;
      b = keep * b + take * delta * delta;
    }
  };
  template <class T>
  constexpr Update<T> for_weights(const StepFacts& facts, bool) const {
    return {T(facts.rate), T(facts.scale), T(rho), T(1 - rho), T(epsilon)};
  }
};

struct Adam {
  static constexpr double default_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0;

  constexpr void correct(StepFacts& facts, double step) const {
    facts.corrected_rate = facts.rate / (1 - std::pow(beta1, step));
    facts.root = 1 / std::sqrt(1 - std::pow(beta2, step));
  }

  template <class T>
  struct Update {
    T rate, scale, root, epsilon, keep, keep1, take1, keep2, take2;
    constexpr void operator()(T& w, T g, T& m, T& v) const {
      const T gradient = scale * g;
      m = keep1 * m + take1 * gradient;
      v = keep2 * v + take2 * gradient * gradient;
      w = keep * w - rate * m / (root * std::sqrt(v) + epsilon);
    }
  };
  template <class T>
  constexpr Update<T> for_weights(const StepFacts& facts, bool matrix) const {
    return {T(facts.corrected_rate), T(facts.scale), T(facts.root), T(epsilon),
            T(1 - (matrix ? facts.rate * decay : 0)), T(beta1), T(1 - beta1), T(beta2),
            T(1 - beta2)};
  }
};

// --- all weights at once, on a CUDA device

// Parameters of one type, as kernels see them: few enough to be passed by value.
template <class T>
struct WeightTable {
  static constexpr int most = 128;
  struct Entry {
    T* weight;
    const T* gradient;
    T* state[2];
    T* before;  // receives the old weights
    i64 count;
  };
  static constexpr i64 threads = 256, most_blocks = 64;

  // Blocks that share a parameter; each makes a partial sum of squares.
  i64 blocks() const { return std::clamp<i64>((largest + threads - 1) / threads, 1, most_blocks); }

  int size = 0;
  i64 largest = 0;  // count
  Entry entry[most] = {};
  bool matrix[most] = {};  // the parameter has two axes or more
};

// The report of a step: f64 [4] on the device.
struct StepReport {
  double norm = 0;
  double updated = 0;   // 1, or 0: nothing was written
  double finite = 1;    // 0: the update made a weight not finite; no later step writes anything
  double failures = 0;  // steps in a row whose norm or loss was not finite
};

struct StepLimits {
  double norm = std::numeric_limits<double>::infinity();      // larger gradients are scaled down
  double failures = std::numeric_limits<double>::infinity();  // after so many no step writes
};

// w clamped to its bounds; NaN stays NaN.
template <class T>
struct Within {
  T* weight;
  T least, most;
  constexpr void operator()(i64 i) const {
    const T w = weight[i];
    weight[i] = w < least ? least : w > most ? most : w;
  }
};

template <class Device, class T>
struct WeightKernels {
  // squares[entry, block] = Σ g² over the entry's part for that block.
  static void sum_squares(const Device&, const WeightTable<T>&, double* squares);
  static void keep_within(const Device&, const Within<T>&, i64 count);
};

template <class Device, class Rule>
struct StepKernels {
  // The facts of the step from `sums` partial sums, in their order; increments *steps if the step
  // updates, and writes report. `loss` is one number, or null.
  static void prepare(const Device&, const Rule&, const double* squares, i64 sums,
                      const double* rate, StepLimits, const float* loss_f32, const double* loss_f64,
                      i64* steps, StepFacts*, StepReport*);
  static void update(const Device&, const Rule&, const WeightTable<float>&, const StepFacts*,
                     StepReport*);
  static void update(const Device&, const Rule&, const WeightTable<double>&, const StepFacts*,
                     StepReport*);
};

}  // namespace weft
