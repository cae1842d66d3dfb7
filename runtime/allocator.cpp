#include "runtime/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "runtime/dispatch.h"
#include "runtime/error.h"

namespace weft {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;

// Rounds up to one of eight sizes an octave: at most 1/8 is wasted, and few classes exist.
std::size_t size_class(std::size_t bytes) {
  bytes = std::max(bytes, alignment);
  const std::size_t octave = std::bit_floor(bytes);
  const std::size_t step = std::max(octave / 8, alignment);
  return (bytes + step - 1) / step * step;
}

void* from_system(std::size_t bytes) {
  const std::size_t align = bytes >= huge_page ? huge_page : alignment;
  void* block = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (block != nullptr && bytes >= huge_page) madvise(block, bytes, MADV_HUGEPAGE);
  return block;
}

void fill_memory(void* block, unsigned char byte, std::size_t bytes) {
  std::memset(block, byte, bytes);
}

}  // namespace

const MemorySource host_memory{from_system, std::free, fill_memory};

void* CachingAllocator::allocate(std::size_t bytes) {
  const std::size_t size = size_class(bytes);
  require(size >= bytes && size < (std::size_t{1} << 62),
          "allocator: {} bytes were asked for; a size is wrong", bytes);
  void* block = nullptr;
  bool poison = false;
  {
    const std::lock_guard lock(mutex_);
    auto& blocks = cache_[size];
    if (!blocks.empty()) {
      block = blocks.back();
      blocks.pop_back();
      counts_.cached -= size;
    } else {
      ++counts_.system_allocations;
    }
    poison = poison_;
  }
  if (block == nullptr) block = source_.allocate(size);
  if (block == nullptr) {
    trim();
    block = source_.allocate(size);
  }
  const MemoryCounts held = counts();
  require(block != nullptr,
          "allocator: the system has no {} bytes left ({} are in use, {} were at the peak); use a "
          "smaller batch or length",
          size, held.live, held.peak);
  {
    const std::lock_guard lock(mutex_);
    counts_.live += size;
    counts_.peak = std::max(counts_.peak, counts_.live);
  }
  if (poison) source_.fill(block, 0xff, size);
  return block;
}

void CachingAllocator::deallocate(void* block, std::size_t bytes) noexcept {
  const std::size_t size = size_class(bytes);
  const std::lock_guard lock(mutex_);
  counts_.live -= size;
  if (caching_) {
    cache_[size].push_back(block);
    counts_.cached += size;
  } else {
    source_.release(block);
  }
}

MemoryCounts CachingAllocator::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  counts_.peak = counts_.live;
}

void CachingAllocator::trim() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& [size, blocks] : cache_) {
    for (void* block : blocks) source_.release(block);
    blocks.clear();
  }
  counts_.cached = 0;
}

void CachingAllocator::set_poison(bool poison) {
  const std::lock_guard lock(mutex_);
  poison_ = poison;
}

void CachingAllocator::set_caching(bool caching) {
  trim();
  const std::lock_guard lock(mutex_);
  caching_ = caching;
}

CachingAllocator& allocator(Device device) {
  return dispatch_device(
      device, [](const auto& where) -> CachingAllocator& { return allocator_of(where); });
}

CachingAllocator& allocator_of(const Cpu&) {
  // Never destroyed: tensors in static storage may outlive any order of destruction.
  static auto* const cpu = new CachingAllocator(host_memory);
  return *cpu;
}

}  // namespace weft
