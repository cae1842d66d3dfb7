#include "runtime/cuda/workspace.h"

#include "runtime/allocator.h"
#include "runtime/error.h"

namespace weft {

WorkspaceBytes::WorkspaceBytes(const Cuda& device, i64 count, std::size_t size) : device_(device) {
  std::size_t bytes = 0;
  require(count >= 0 && !__builtin_mul_overflow(static_cast<std::size_t>(count), size, &bytes),
          "workspace: {} elements of {} bytes do not fit the address space; a size is wrong", count,
          size);
  data_ = allocator_of(device).allocate(bytes);
}

WorkspaceBytes::~WorkspaceBytes() {
  if (data_ != nullptr) allocator_of(device_).deallocate(data_);
}

}  // namespace weft
