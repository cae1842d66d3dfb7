// The kernels of pointwise.h.
#pragma once

#include <cstdint>

#include "ops/pointwise/functions.h"
#include "runtime/device.h"

namespace weft {

// The loops over the elements of a result and of two operands that broadcast to it. Axes that all
// three run through alike are merged: [B, N, d] with [N, d] becomes [B, N·d].
struct BroadcastLoops {
  static constexpr int most = 8;
  int rank = 0;  // axis 0 is the innermost
  std::int64_t size[most] = {};
  std::int64_t a[most] = {}, b[most] = {};  // strides

  struct Place {
    std::int64_t a, b;  // offsets
  };
  constexpr Place of(std::int64_t element) const {
    Place place{0, 0};
    for (int axis = 0; axis < rank; ++axis) {
      const std::int64_t index = element % size[axis];
      element /= size[axis];
      place.a += index * a[axis];
      place.b += index * b[axis];
    }
    return place;
  }
};

struct Plus {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return a + b;
  }
};
struct Minus {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return a - b;
  }
};
struct Times {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return a * b;
  }
};
struct Over {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return a / b;
  }
};
struct Larger {  // of numbers that compare as neither, one is NaN, and so is their sum
  template <class X>
  constexpr X operator()(X a, X b) const {
    return where(b <= a, a, where(a < b, b, a + b));
  }
};
// The slopes of max(a, b): by b, and by a.
struct Below {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return where(a < b, X(1), X(0));
  }
};
struct NotBelow {
  template <class X>
  constexpr X operator()(X a, X b) const {
    return where(a < b, X(0), X(1));
  }
};

// c = F(a, b), row-major.
template <class F, class T>
void binary(const Cpu&, const BroadcastLoops&, std::int64_t count, const T* a, const T* b, T* c);
template <class F, class T>
void binary(const Cuda&, const BroadcastLoops&, std::int64_t count, const T* a, const T* b, T* c);

// y = factor · x
template <class T>
void scale(const Cpu&, std::int64_t count, double factor, const T* x, T* y);
template <class T>
void scale(const Cuda&, std::int64_t count, double factor, const T* x, T* y);

// y = F(x); F is one of functions.h.
template <class F, class T>
void pointwise(const Cpu&, std::int64_t count, const T* x, T* y);
template <class F, class T>
void pointwise(const Cuda&, std::int64_t count, const T* x, T* y);

// dx = dy F'(kept), where kept is x or y.
template <class F, class T>
void pointwise_backward(const Cpu&, std::int64_t count, const T* kept, const T* dy, T* dx);
template <class F, class T>
void pointwise_backward(const Cuda&, std::int64_t count, const T* kept, const T* dy, T* dx);

}  // namespace weft
