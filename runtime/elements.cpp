#include "runtime/elements.h"

#include <algorithm>
#include <cstring>

#include "runtime/parallel.h"

namespace weft {
namespace {

constexpr i64 grain = 1 << 16;  // elements that one task adds

// Calls f(target offset, source offset, length, target stride, source stride) for each run along
// the innermost axis.
template <class F>
void each_run(const ElementLoops& loops, const F& f) {
  if (loops.count == 0) return;
  if (loops.rank == 0) return f(0, 0, 1, 1, 1);
  const int last = loops.rank - 1;
  i64 index[ElementLoops::most] = {};
  i64 target = 0, source = 0;
  while (true) {
    f(target, source, loops.size[last], loops.to[last], loops.from[last]);
    int axis = last - 1;
    for (; axis >= 0; --axis) {
      target += loops.to[axis];
      source += loops.from[axis];
      if (++index[axis] < loops.size[axis]) break;
      target -= loops.to[axis] * loops.size[axis];
      source -= loops.from[axis] * loops.size[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

// Contiguous elements, long ones on all threads.
template <class To, class From>
void copy_contiguous(i64 count, const From* from, To* to) {
  parallel_ranges(count, grain, [=](i64 begin, i64 end) {
    if constexpr (std::is_same_v<To, From>) {
      std::memmove(to + begin, from + begin, static_cast<std::size_t>(end - begin) * sizeof(To));
    } else {
      convert_all(end - begin, from + begin, to + begin);
    }
  });
}

template <class To, class From>
void copy_each(const ElementLoops& loops, const From* origin, To* target) {
  each_run(loops, [&](i64 to, i64 from, i64 length, i64 to_step, i64 from_step) {
    if (to_step == 1 && from_step == 1) {
      return copy_contiguous(length, origin + from, target + to);
    }
    for (i64 i = 0; i < length; ++i) {
      target[to + i * to_step] = convert<To>(origin[from + i * from_step]);
    }
  });
}

}  // namespace

template <class Device, class To>
void ElementKernels<Device, To>::copy(const Device&, const ElementLoops& loops, DType from_type,
                                      const void* from, To* to) {
  with_type(from_type,
            [&]<class From>(From) { copy_each(loops, static_cast<const From*>(from), to); });
}

template <class Device, class To>
void ElementKernels<Device, To>::fill(const Device&, const ElementLoops& loops, To value,
                                      To* target) {
  each_run(loops, [&](i64 to, i64, i64 length, i64 step, i64) {
    for (i64 i = 0; i < length; ++i) target[to + i * step] = value;
  });
}

template <class Device, class T>
void AddKernels<Device, T>::add(const Device&, i64 count, const T* a, const T* b, T* c) {
  parallel_ranges(count, grain, [=](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) c[i] = a[i] + b[i];
  });
}

void copy_bytes(const Cpu&, const std::byte* from, std::byte* to, std::size_t bytes) {
  std::memmove(to, from, bytes);
}

template struct ElementKernels<Cpu, float>;
template struct ElementKernels<Cpu, double>;
template struct ElementKernels<Cpu, bf16>;
template struct ElementKernels<Cpu, std::int32_t>;
template struct ElementKernels<Cpu, i64>;
template struct ElementKernels<Cpu, std::uint8_t>;
template struct AddKernels<Cpu, float>;
template struct AddKernels<Cpu, double>;
template struct AddKernels<Cpu, bf16>;

}  // namespace weft
