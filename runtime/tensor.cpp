#include "runtime/tensor.h"

#include <algorithm>

#include "runtime/allocator.h"
#include "runtime/dispatch.h"
#include "runtime/elements.h"

namespace weft {
namespace {

static_assert(ElementLoops::most >= Shape::max_rank);

// Loops over tensors of this shape with these strides. Axes that are contiguous in both tensors are
// merged: on a GPU each axis costs a division an element.
ElementLoops loops_over(const Shape& shape, const Shape& to, const Shape& from) {
  ElementLoops loops;
  loops.count = shape.count();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const i64 size = shape[axis];
    if (size == 1) continue;
    const int last = loops.rank - 1;
    if (last >= 0 && loops.to[last] == size * to[axis] && loops.from[last] == size * from[axis]) {
      loops.size[last] *= size;
    } else {
      loops.size[loops.rank++] = size;
    }
    loops.to[loops.rank - 1] = to[axis];
    loops.from[loops.rank - 1] = from[axis];
  }
  return loops;
}

}  // namespace

Storage::Storage(std::size_t bytes, Device device)
    : data_(static_cast<std::byte*>(allocator(device).allocate(bytes))),
      bytes_(bytes),
      device_(device) {}

Storage::~Storage() { allocator(device_).deallocate(data_); }

Shape packed_strides(const Shape& shape) {
  Shape strides = shape;
  i64 step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = step;
    require(!__builtin_mul_overflow(step, std::max<i64>(shape[axis], 1), &step),
            "tensor: the strides of {} do not fit 64 bits", shape);
  }
  return strides;
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  Tensor tensor;
  const auto count = static_cast<std::size_t>(shape.count());
  std::size_t bytes = 0;
  require(!__builtin_mul_overflow(count, size_of(dtype), &bytes),
          "tensor: {} elements of {} do not fit the address space", count, name_of(dtype));
  tensor.storage_ = std::make_shared<Storage>(bytes, device);
  tensor.shape_ = shape;
  tensor.strides_ = packed_strides(shape);
  tensor.dtype_ = dtype;
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0, dtype, device);
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill(value);
  return tensor;
}

int Tensor::checked_axis(int axis) const { return wrapped_axis("tensor", shape_, axis); }

i64 Tensor::rows() const {
  i64 rows = 1;
  for (int axis = 0; axis + 1 < rank(); ++axis) rows *= size(axis);
  return rows;
}

bool Tensor::contiguous() const {
  if (count() == 0) return true;
  i64 step = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape_[axis] != 1 && strides_[axis] != step) return false;
    step *= shape_[axis];
  }
  return true;
}

// Each axis of the new shape splits, or merges, contiguous axes of the old one: both shapes are
// walked side by side in groups of equal element count.
std::optional<Tensor> Tensor::view_as(const Shape& shape) const {
  require(shape.count() == count(), "reshape: {} has {} elements, {} has {}", shape_, count(),
          shape, shape.count());
  Tensor view = *this;
  view.shape_ = shape;
  view.strides_ = packed_strides(shape);
  if (count() == 0 || contiguous()) return view;
  int old_axis = 0, new_axis = 0;
  while (new_axis < shape.rank()) {
    while (old_axis < rank() && shape_[old_axis] == 1) ++old_axis;
    i64 new_size = shape[new_axis];
    int new_end = new_axis + 1;
    if (new_size == 1) {
      ++new_axis;
      continue;
    }
    i64 old_size = shape_[old_axis];
    int old_end = old_axis + 1;
    while (old_size != new_size) {
      if (old_size < new_size) {
        const int previous = old_end - 1;
        while (shape_[old_end] == 1) ++old_end;
        if (strides_[previous] != strides_[old_end] * shape_[old_end]) return std::nullopt;
        old_size *= shape_[old_end++];
      } else {
        new_size *= shape[new_end++];
      }
    }
    i64 step = strides_[old_end - 1];
    for (int axis = new_end - 1; axis >= new_axis; --axis) {
      view.strides_[axis] = step;
      step *= shape[axis];
    }
    old_axis = old_end;
    new_axis = new_end;
  }
  return view;
}

Tensor Tensor::reshape(const Shape& shape) const {
  const std::optional<Tensor> view = view_as(shape);
  require(view.has_value(),
          "reshape: {} with strides {} cannot be seen as {} without a copy; call packed() first",
          shape_, strides_, shape);
  return *view;
}

Tensor Tensor::reshaped(const Shape& shape) const {
  const std::optional<Tensor> view = view_as(shape);
  return view ? *view : clone().reshape(shape);
}

Tensor Tensor::transpose(int a, int b) const {
  Tensor view = *this;
  a = checked_axis(a);
  b = checked_axis(b);
  std::swap(view.shape_[a], view.shape_[b]);
  std::swap(view.strides_[a], view.strides_[b]);
  return view;
}

Tensor Tensor::slice(int axis, i64 begin, i64 end) const {
  axis = checked_axis(axis);
  require(0 <= begin && begin <= end && end <= shape_[axis],
          "slice: {} … {} is not a range of axis {} of {}", begin, end, axis, shape_);
  Tensor view = *this;
  view.shape_[axis] = end - begin;
  view.offset_ += begin * strides_[axis];
  return view;
}

Tensor Tensor::expand(const Shape& shape) const {
  const int added = shape.rank() - rank();
  require(added >= 0, "expand: {} has more axes than {}", shape_, shape);
  Tensor view = *this;
  view.shape_ = shape;
  view.strides_ = shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const i64 size = axis < added ? 1 : shape_[axis - added];
    require(size == shape[axis] || size == 1, "expand: {} does not broadcast to {}", shape_, shape);
    view.strides_[axis] = size == 1 ? 0 : strides_[axis - added];
  }
  return view;
}

Tensor Tensor::joined(std::span<const Tensor> slices, int axis) {
  Tensor whole = slices[0];
  for (const Tensor& slice : slices.subspan(1)) {
    const i64 size = whole.size(axis);
    Shape shape = slice.shape_;
    shape[axis] = size;
    if (!whole.same_storage(slice) || whole.dtype_ != slice.dtype_ || whole.shape_ != shape ||
        whole.strides_ != slice.strides_ ||
        slice.offset_ != whole.offset_ + size * whole.stride(axis)) {
      return {};
    }
    whole.shape_[axis] += slice.shape_[axis];
  }
  return whole;
}

Tensor Tensor::clone() const {
  Tensor copy = empty(shape_, dtype_, device());
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::packed() const { return contiguous() ? *this : clone(); }

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor converted = empty(shape_, dtype, device());
  converted.copy_from(*this);
  return converted;
}

Tensor Tensor::to(Device device) const {
  if (!defined() || device == this->device()) return *this;
  const Tensor row_major = packed();
  Tensor moved = empty(shape_, dtype_, device);
  const Device far = device.type == DeviceType::cpu ? this->device() : device;
  dispatch_device(
      far, [&](auto where) { copy_bytes(where, row_major.bytes(), moved.bytes(), byte_count()); });
  return moved;
}

// Whether two views may share bytes in different places of the two.
bool Tensor::overlaps(const Tensor& other) const {
  if (count() == 0 || other.count() == 0 || !same_storage(other)) return false;
  if (bytes() == other.bytes() && strides_ == other.strides_ && dtype_ == other.dtype_) {
    return false;
  }
  const auto end = [](const Tensor& x) {
    i64 last = 0;
    for (int axis = 0; axis < x.rank(); ++axis) last += (x.size(axis) - 1) * x.stride(axis);
    return x.bytes() + (last + 1) * static_cast<i64>(size_of(x.dtype()));
  };
  return bytes() < end(other) && other.bytes() < end(*this);
}

void Tensor::copy_from(const Tensor& source) const {
  require(source.shape_ == shape_, "copy: the source is {}, the target {}", source.shape_, shape_);
  if (device() != source.device()) return copy_from(source.to(dtype_).to(device()));
  if (overlaps(source)) return copy_from(source.clone());
  const ElementLoops loops = loops_over(shape_, strides_, source.strides_);
  dispatch_device(device(), [&](auto where) {
    with_type(dtype_, [&]<class To>(To) {
      ElementKernels<decltype(where), To>::copy(where, loops, source.dtype_, source.bytes(),
                                                data<To>());
    });
  });
}

void Tensor::fill(double value) const {
  const ElementLoops loops = loops_over(shape_, strides_, strides_);
  dispatch_device(device(), [&](auto where) {
    with_type(dtype_, [&]<class T>(T) {
      ElementKernels<decltype(where), T>::fill(where, loops, convert<T>(value), data<T>());
    });
  });
}

double Tensor::item() const {
  require(defined() && count() == 1, "item: wanted one element, got {}", shape_);
  return to(DType::f64).to_vector<double>()[0];
}

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  Shape result = a.rank() >= b.rank() ? a : b;
  const Shape& other = a.rank() >= b.rank() ? b : a;
  const int added = result.rank() - other.rank();
  for (int axis = 0; axis < other.rank(); ++axis) {
    i64& size = result[axis + added];
    require(size == other[axis] || size == 1 || other[axis] == 1,
            "{}: {} and {} do not broadcast (axis {} from the end)", op, a, b, other.rank() - axis);
    if (size == 1) size = other[axis];
  }
  return result;
}

}  // namespace weft
