#include "runtime/tensor.h"

#include <algorithm>
#include <cstring>

#include "runtime/allocator.h"
#include "runtime/dispatch.h"

namespace weft {
namespace {

// Calls f(target offset, source offset, length, target stride, source stride) for each innermost
// run of two tensors of one shape.
template <class F>
void each_run(const Shape& shape, const Shape& to, const Shape& from, const F& f) {
  if (shape.count() == 0) return;
  if (shape.rank() == 0) return f(0, 0, 1, 1, 1);
  const int last = shape.rank() - 1;
  Shape index = shape;
  for (int axis = 0; axis <= last; ++axis) index[axis] = 0;
  std::int64_t target = 0, source = 0;
  while (true) {
    f(target, source, shape[last], to[last], from[last]);
    int axis = last - 1;
    for (; axis >= 0; --axis) {
      target += to[axis];
      source += from[axis];
      if (++index[axis] < shape[axis]) break;
      target -= to[axis] * shape[axis];
      source -= from[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<From, bf16>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bf16>) {
    return bf16(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace

Storage::Storage(std::size_t bytes, Device device)
    : data_(static_cast<std::byte*>(allocator(device).allocate(bytes))),
      bytes_(bytes),
      device_(device) {}

Storage::~Storage() { allocator(device_).deallocate(data_, bytes_); }

Shape packed_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = step;
    step *= std::max<std::int64_t>(shape[axis], 1);
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

int Tensor::checked_axis(int axis) const {
  const int wrapped = axis < 0 ? axis + rank() : axis;
  require(wrapped >= 0 && wrapped < rank(), "tensor {}: there is no axis {}", shape_, axis);
  return wrapped;
}

bool Tensor::contiguous() const {
  std::int64_t step = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape_[axis] != 1 && strides_[axis] != step) return false;
    step *= shape_[axis];
  }
  return true;
}

// Each axis of the new shape is cut from, or joins, axes of the old one that follow each other
// without a gap: both shapes are walked side by side in groups of equal element count.
std::optional<Tensor> Tensor::view_as(const Shape& shape) const {
  require(shape.count() == count(), "reshape: {} has {} elements, {} has {}", shape_, count(), shape,
          shape.count());
  Tensor view = *this;
  view.shape_ = shape;
  view.strides_ = packed_strides(shape);
  if (count() == 0 || contiguous()) return view;
  int old_axis = 0, new_axis = 0;
  while (new_axis < shape.rank()) {
    while (old_axis < rank() && shape_[old_axis] == 1) ++old_axis;
    std::int64_t new_size = shape[new_axis];
    int new_end = new_axis + 1;
    if (new_size == 1) {
      ++new_axis;
      continue;
    }
    std::int64_t old_size = shape_[old_axis];
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
    std::int64_t step = strides_[old_end - 1];
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

Tensor Tensor::slice(int axis, std::int64_t begin, std::int64_t end) const {
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
    const std::int64_t size = axis < added ? 1 : shape_[axis - added];
    require(size == shape[axis] || size == 1, "expand: {} does not broadcast to {}", shape_, shape);
    view.strides_[axis] = size == 1 ? 0 : strides_[axis - added];
  }
  return view;
}

Tensor Tensor::joined(std::span<const Tensor> slices, int axis) {
  Tensor whole = slices[0];
  for (const Tensor& slice : slices.subspan(1)) {
    const std::int64_t size = whole.size(axis);
    Shape shape = slice.shape_;
    shape[axis] = size;
    if (!whole.same_storage(slice) || whole.dtype_ != slice.dtype_ || whole.shape_ != shape ||
        whole.strides_ != slice.strides_ || slice.offset_ != whole.offset_ + size * whole.stride(axis)) {
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

void Tensor::copy_from(const Tensor& source) const {
  require(source.shape_ == shape_, "copy: the source is {}, the target {}", source.shape_, shape_);
  require(device() == source.device(), "copy: both tensors must be on one device");
  dispatch_device(device(), [&](auto) {
    dispatch_any(dtype_, [&](auto to_type) {
      dispatch_any(source.dtype_, [&](auto from_type) {
        using To = decltype(to_type);
        using From = decltype(from_type);
        To* target = data<To>();
        const From* origin = source.data<From>();
        each_run(shape_, strides_, source.strides_,
                 [&](std::int64_t to, std::int64_t from, std::int64_t length, std::int64_t to_step,
                     std::int64_t from_step) {
                   if constexpr (std::is_same_v<To, From>) {
                     if (to_step == 1 && from_step == 1) {
                       std::memmove(target + to, origin + from,
                                    static_cast<std::size_t>(length) * sizeof(To));
                       return;
                     }
                   }
                   for (std::int64_t i = 0; i < length; ++i) {
                     target[to + i * to_step] = convert<To>(origin[from + i * from_step]);
                   }
                 });
      });
    });
  });
}

void Tensor::fill(double value) const {
  dispatch_device(device(), [&](auto) {
    dispatch_any(dtype_, [&](auto type) {
      using T = decltype(type);
      T* target = data<T>();
      const T element = convert<T>(value);
      each_run(shape_, strides_, strides_,
               [&](std::int64_t to, std::int64_t, std::int64_t length, std::int64_t step,
                   std::int64_t) {
                 for (std::int64_t i = 0; i < length; ++i) target[to + i * step] = element;
               });
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
    std::int64_t& size = result[axis + added];
    require(size == other[axis] || size == 1 || other[axis] == 1,
            "{}: {} and {} do not broadcast (axis {} from the end)", op, a, b, other.rank() - axis);
    if (size == 1) size = other[axis];
  }
  return result;
}

}  // namespace weft
