// Tensor: a cheap handle on strided elements: storage, shape, strides, offset.
//
// Copies and views share bytes; only clone(), packed(), reshaped(), to() and copy_from() copy
// elements. A default-constructed tensor is undefined and means "none".
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/shape.h"
#include "runtime/view.h"

namespace weft {

struct PreparedLayouts;  // of runtime/prepared.h

// Reference-counted bytes from the allocator of one device.
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  // Kept beside the bytes; null: none is.
  std::shared_ptr<PreparedLayouts>& prepared_layouts() { return prepared_layouts_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
  Device device_;
  std::shared_ptr<PreparedLayouts> prepared_layouts_;
};

class Tensor {
 public:
  Tensor() = default;

  static Tensor empty(const Shape& shape, DType dtype, Device device = {});  // not initialised
  static Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }
  static Tensor zeros(const Shape& shape, DType dtype, Device device = {});
  static Tensor full(const Shape& shape, double value, DType dtype, Device device = {});
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  // in elements
  int rank() const { return shape_.rank(); }
  i64 size(int axis) const { return shape_[checked_axis(axis)]; }  // −1 is the last axis
  i64 stride(int axis) const { return strides_[checked_axis(axis)]; }
  i64 count() const { return shape_.count(); }
  std::size_t byte_count() const { return static_cast<std::size_t>(count()) * size_of(dtype_); }
  i64 rows() const;  // the product of all sizes but the last, also where that is 0
  DType dtype() const { return dtype_; }
  Device device() const { return storage_ ? storage_->device() : Device{}; }
  bool contiguous() const;  // row-major without gaps
  bool unique() const { return storage_.use_count() == 1; }  // no other tensor shares these bytes
  bool same_storage(const Tensor& other) const { return storage_ == other.storage_; }
  std::shared_ptr<PreparedLayouts>& prepared_layouts() const {
    return storage_->prepared_layouts();
  }

  std::byte* bytes() const {
    require(defined(), "tensor: it is undefined; is an input missing?");
    return storage_->data() + offset_ * i64(size_of(dtype_));
  }
  template <class T>
  T* data() const {
    require(dtype_of<T> == dtype_, "tensor {}: wanted {} elements, got {}", shape_,
            name_of(dtype_of<T>), name_of(dtype_));
    return reinterpret_cast<T*>(bytes());
  }
  template <class T, int Rank>
  View<T, Rank> view() const;
  template <class T>
  std::vector<T> to_vector() const;  // the elements in row-major order
  double item() const;               // the value of a tensor with one element

  // Views: the same bytes with other shapes and strides.
  Tensor reshape(const Shape& shape) const;  // throws if it would have to copy
  Tensor transpose(int a, int b) const;
  Tensor slice(int axis, i64 begin, i64 end) const;
  Tensor expand(const Shape& shape) const;  // axes of size 1 (and new leading ones) repeat
  // The view that these slices along `axis` were cut from, if they are adjacent in one storage, in
  // this order; otherwise undefined.
  static Tensor joined(std::span<const Tensor> slices, int axis);

  // Copies.
  Tensor clone() const;                // row-major copy
  Tensor packed() const;               // itself if contiguous, otherwise a clone
  Tensor reshaped(const Shape& shape) const;   // a view if possible, otherwise a copy
  Tensor to(DType dtype) const;                // itself if the type is that already
  Tensor to(Device device) const;              // itself if it is there already; otherwise row-major
  // Of the same shape; converts the type, changes the device. The two may overlap.
  void copy_from(const Tensor& source) const;
  void fill(double value) const;

 private:
  int checked_axis(int axis) const;
  bool overlaps(const Tensor& other) const;
  std::optional<Tensor> view_as(const Shape& shape) const;  // none if it would have to copy

  std::shared_ptr<Storage> storage_;
  Shape shape_;
  Shape strides_;
  i64 offset_ = 0;  // in elements
  DType dtype_ = DType::f32;
};

// The broadcast shape (NumPy's rules) of an element-wise op on `a` and `b`; throws, naming `op`.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

// The strides of a row-major tensor of this shape.
Shape packed_strides(const Shape& shape);

template <class T, int Rank>
View<T, Rank> Tensor::view() const {
  require(rank() == Rank, "tensor: wanted {} axes, got {}", Rank, shape_);
  View<T, Rank> view;
  view.data = data<std::remove_const_t<T>>();
  for (int axis = 0; axis < Rank; ++axis) {
    view.sizes[axis] = shape_[axis];
    view.strides[axis] = strides_[axis];
  }
  return view;
}

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  require(static_cast<i64>(values.size()) == shape.count(),
          "tensor: {} values do not fill the shape {}", values.size(), shape);
  Tensor tensor = empty(shape, dtype_of<T>);
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor row_major = packed().to(Device{});
  const T* values = row_major.data<T>();
  return std::vector<T>(values, values + count());
}

}  // namespace weft
