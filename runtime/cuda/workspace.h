// Scratch memory of a kernel on a CUDA device, from the counting allocator: the counterpart of
// Scratch (runtime/scratch.h) on the CPU. For .cu files.
//
// It may be freed as soon as the kernels that use it are queued: the next owner of the memory uses
// it on the same stream, after them.
#pragma once

#include <cstddef>
#include <utility>

#include "runtime/cuda/device.h"
#include "runtime/view.h"

namespace weft {

class WorkspaceBytes {
 public:
  WorkspaceBytes() = default;
  WorkspaceBytes(const Cuda& device, i64 count, std::size_t size);
  WorkspaceBytes(WorkspaceBytes&& other) noexcept { *this = std::move(other); }
  WorkspaceBytes& operator=(WorkspaceBytes&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~WorkspaceBytes();

  void* data() const { return data_; }

 private:
  Cuda device_;
  void* data_ = nullptr;
};

// `count` elements, not initialised. A default-constructed workspace has none: its data is null.
template <class T>
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Cuda& device, i64 count) : bytes_(device, count, sizeof(T)) {}

  T* data() const { return static_cast<T*>(bytes_.data()); }
  // Row-major, from the first element on.
  template <class... Size>
  View<T, sizeof...(Size)> view(Size... size) const {
    constexpr int rank = sizeof...(Size);
    View<T, rank> view{data(), {static_cast<i64>(size)...}, {}};
    i64 step = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      view.strides[axis] = step;
      step *= view.sizes[axis];
    }
    return view;
  }

 private:
  WorkspaceBytes bytes_;
};

}  // namespace weft
