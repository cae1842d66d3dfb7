// libFuzzer's entry: a target, which must not exceed the memory of its input's size and 16 MB. The
// allocations are counted; one beyond the limit ends the program like a crash, and libFuzzer keeps
// the input.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include <sanitizer/allocator_interface.h>

extern "C" int WEFT_TARGET(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::int64_t allowance = 16 << 20, none = std::numeric_limits<std::int64_t>::max();

std::atomic<std::int64_t> held = 0, limit = none;  // bytes

void allocated(const volatile void*, std::size_t size) {
  const auto bytes = static_cast<std::int64_t>(size);
  const std::int64_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (now <= limit.load(std::memory_order_relaxed)) return;
  std::fprintf(stderr, "ERROR: %lld bytes more are held than the input's size and 16 MB\n",
               static_cast<long long>(now - limit.exchange(none)));
  std::abort();
}

void freed(const volatile void* block) {
  const std::size_t size = __sanitizer_get_allocated_size(block);
  held.fetch_sub(static_cast<std::int64_t>(size), std::memory_order_relaxed);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (__sanitizer_install_malloc_and_free_hooks(allocated, freed) == 0) std::abort();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  limit = held + static_cast<std::int64_t>(size) + allowance;
  const int result = WEFT_TARGET(data, size);
  limit = none;
  return result;
}
