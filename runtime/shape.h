// The sizes of a tensor, or its strides: at most six numbers, stored inline.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "runtime/error.h"
#include "runtime/types.h"

namespace weft {

class Shape {
 public:
  static constexpr int max_rank = 6;

  Shape() = default;
  Shape(std::initializer_list<i64> sizes) {
    for (const i64 size : sizes) push_back(size);
  }

  int rank() const { return rank_; }
  const i64* begin() const { return sizes_.data(); }
  const i64* end() const { return sizes_.data() + rank_; }
  i64 operator[](int axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  i64& operator[](int axis) { return sizes_[static_cast<std::size_t>(axis)]; }
  i64 back() const { return sizes_[static_cast<std::size_t>(rank_ - 1)]; }

  void push_back(i64 size) {
    require(rank_ < max_rank, "shape: at most {} axes are supported", max_rank);
    sizes_[static_cast<std::size_t>(rank_++)] = size;
  }

  // Number of elements; throws if it does not fit in 63 bits.
  i64 count() const {
    i64 product = 1;
    for (const i64 size : *this) {
      require(size >= 0, "shape: sizes must not be negative, got {}", size);
      require(!__builtin_mul_overflow(product, size, &product),
              "shape: the number of elements does not fit 64 bits");
    }
    return product;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int axis = 0; axis < a.rank_; ++axis) {
      if (a[axis] != b[axis]) return false;
    }
    return true;
  }

 private:
  std::array<i64, max_rank> sizes_{};
  int rank_ = 0;
};

}  // namespace weft

template <>
struct fmt::formatter<weft::Shape> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const weft::Shape& shape, Context& context) const {
    auto out = fmt::format_to(context.out(), "[");
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (axis > 0) out = fmt::format_to(out, ",");
      out = fmt::format_to(out, "{}", shape[axis]);
    }
    return fmt::format_to(out, "]");
  }
};

namespace weft {

// `axis`, counted from the end if negative. Throws, naming the op, if there is no such axis.
inline int wrapped_axis(const char* op, const Shape& shape, int axis) {
  const int rank = shape.rank();
  require(-rank <= axis && axis < rank, "{}: {} has no axis {}", op, shape, axis);
  return axis < 0 ? axis + rank : axis;
}

// [outer, n, inner]: a tensor of any rank seen as one of three axes; `axis` is the second.
inline Shape around_axis(const Shape& shape, int axis) {
  Shape three{1, shape[axis], 1};
  for (int other = 0; other < shape.rank(); ++other) {
    if (other != axis) three[other < axis ? 0 : 2] *= shape[other];
  }
  return three;
}

}  // namespace weft
