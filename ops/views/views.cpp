#include "ops/views/views.h"

#include "autograd/apply.h"
#include "ops/reduce/reduce.h"

namespace weft {
namespace {

Tensor side_by_side(std::span<const Tensor> parts, int axis) {
  Shape shape = parts[0].shape();
  shape[axis] = 0;
  for (const Tensor& part : parts) shape[axis] += part.size(axis);
  const Tensor joined = Tensor::empty(shape, parts[0].dtype(), parts[0].device());
  i64 begin = 0;
  for (const Tensor& part : parts) {
    joined.slice(axis, begin, begin + part.size(axis)).copy_from(part);
    begin += part.size(axis);
  }
  return joined;
}

struct Reshape {
  static constexpr const char* name = "reshape";
  static constexpr bool takes_bf16 = true;
  Shape shape;
  struct Saved {
    Shape from;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.shape();
    return x.reshaped(shape);
  }
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    return dy.reshaped(saved.from);
  }
};

struct Transpose {
  static constexpr const char* name = "transpose";
  static constexpr bool takes_bf16 = true;
  int a, b;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return x.transpose(a, b); }
  Tensor backward(const Saved&, const Tensor& dy) const { return dy.transpose(a, b); }
};

struct Slice {
  static constexpr const char* name = "slice";
  static constexpr bool takes_bf16 = true;
  int axis;
  i64 begin, end;
  struct Saved {
    Shape from;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.shape();
    return x.slice(axis, begin, end);
  }
  Tensor backward(const Saved& saved, const Tensor& dy) const {
    const Tensor dx = Tensor::empty(saved.from, dy.dtype(), dy.device());
    dx.slice(axis, 0, begin).fill(0);
    dx.slice(axis, begin, end).copy_from(dy);
    dx.slice(axis, end, dx.size(axis)).fill(0);
    return dx;
  }
};

struct Expand {
  static constexpr const char* name = "expand";
  static constexpr bool takes_bf16 = true;
  Shape shape;
  struct Saved {
    Shape from;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.shape();
    return x.expand(shape);
  }
  Tensor backward(const Saved& saved, const Tensor& dy) const { return sum_to(dy, saved.from); }
};

struct Concatenate {
  static constexpr const char* name = "concatenate";
  static constexpr bool takes_bf16 = true;
  int axis;
  struct Saved {
    std::vector<i64> sizes;
  };
  Tensor forward(Saved& saved, std::span<const Tensor> parts) const {
    for (const Tensor& part : parts) saved.sizes.push_back(part.size(axis));
    return side_by_side(parts, axis);
  }
  std::vector<Tensor> backward(const Saved& saved, const Tensor& dy) const {
    std::vector<Tensor> gradients;
    i64 begin = 0;
    for (const i64 size : saved.sizes) {
      gradients.push_back(dy.slice(axis, begin, begin + size));
      begin += size;
    }
    return gradients;
  }
};

struct Split {
  static constexpr const char* name = "split";
  static constexpr bool takes_bf16 = true;
  int axis;
  std::vector<i64> sizes;
  struct Saved {};
  std::vector<Tensor> forward(Saved&, const Tensor& x) const {
    std::vector<Tensor> parts;
    i64 begin = 0;
    for (const i64 size : sizes) {
      parts.push_back(x.slice(axis, begin, begin + size));
      begin += size;
    }
    return parts;
  }
  Tensor backward(const Saved&, std::span<const Tensor> parts) const {
    const Tensor whole = Tensor::joined(parts, axis);
    return whole.defined() ? whole : side_by_side(parts, axis);
  }
};

}  // namespace

Variable reshape(const Variable& x, const Shape& shape) { return apply(Reshape{shape}, x); }

Variable transpose(const Variable& x, int a, int b) { return apply(Transpose{a, b}, x); }

Variable slice(const Variable& x, int axis, i64 begin, i64 end) {
  return apply(Slice{wrapped_axis(Slice::name, x.shape(), axis), begin, end}, x);
}

Variable expand(const Variable& x, const Shape& shape) { return apply(Expand{shape}, x); }

Variable concatenate(std::span<const Variable> parts, int axis) {
  require(!parts.empty(), "concatenate: wanted at least one input, got none");
  axis = wrapped_axis(Concatenate::name, parts[0].shape(), axis);
  for (const Variable& part : parts) {
    Shape shape = part.shape();
    if (shape.rank() == parts[0].shape().rank()) shape[axis] = parts[0].size(axis);
    require(shape == parts[0].shape() && part.value().dtype() == parts[0].value().dtype(),
            "concatenate: {} {} and {} {} do not fit side by side along axis {}",
            name_of(parts[0].value().dtype()), parts[0].shape(), name_of(part.value().dtype()),
            part.shape(), axis);
  }
  return apply_list(Concatenate{axis}, parts)[0];
}

std::vector<Variable> split(const Variable& x, int axis, const std::vector<i64>& sizes) {
  axis = wrapped_axis(Split::name, x.shape(), axis);
  i64 total = 0;
  for (const i64 size : sizes) total += size;
  require(!sizes.empty() && total == x.size(axis),
          "split: axis {} of {} needs sizes that sum to {}, got {}", axis, x.shape(), x.size(axis),
          total);
  return apply(Split{axis, sizes}, x);
}

}  // namespace weft
