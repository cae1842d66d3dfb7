#include "runtime/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <functional>

#include <fmt/format.h>
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

const MemorySource host_memory{"the CPU", from_system, std::free, fill_memory};

std::string CachingAllocator::report(std::size_t wanted) const {
  std::vector<std::size_t> sizes;
  for (const auto& [block, known] : blocks_) {
    if (known.live) sizes.push_back(known.size);
  }
  constexpr std::size_t shown = 5;
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  const std::size_t others = sizes.size() - std::min(sizes.size(), shown);
  sizes.resize(sizes.size() - others);
  return fmt::format("allocator: {} has no {} bytes left; {} are in use in {} blocks (the largest: "
                     "{}), {} were at the peak; use a smaller batch or length, or recompute()",
                     source_.name, wanted, counts_.live, sizes.size() + others,
                     fmt::join(sizes, ", "), counts_.peak);
}

// From the system; once more, after the common cache was given back, where it has no more.
void* CachingAllocator::from_source(std::size_t size) {
  ++counts_.system_allocations;
  void* block = source_.allocate(size);
  if (block == nullptr) {
    for (auto& [of_size, blocks] : pools_.at(0)) {
      for (void* const unused : blocks) give_back(unused, blocks_.at(unused));
      blocks.clear();
    }
    block = source_.allocate(size);
  }
  if (block == nullptr) throw DeviceError(report(size));
  return block;
}

// A block that stands in no cache any more goes back to the system.
void CachingAllocator::give_back(void* block, const Block& known) {
  if (!known.live) counts_.cached -= known.size;
  source_.release(block);
  blocks_.erase(block);
}

void* CachingAllocator::allocate(std::size_t bytes) {
  const std::size_t size = size_class(bytes);
  require(size >= bytes && size < (std::size_t{1} << 62),
          "allocator: {} bytes were asked for; a size is wrong", bytes);
  void* block = nullptr;
  bool poison = false;
  {
    const std::lock_guard lock(mutex_);
    auto& blocks = pools_.at(pool_)[size];
    if (!blocks.empty()) {
      block = blocks.back();
      blocks.pop_back();
      counts_.cached -= size;
      blocks_.at(block).live = true;
    } else {
      block = from_source(size);
      blocks_[block] = {size, pool_, true};
    }
    counts_.live += size;
    counts_.peak = std::max(counts_.peak, counts_.live);
    poison = poison_;
  }
  if (poison) source_.fill(block, 0xff, size);
  return block;
}

void CachingAllocator::deallocate(void* block) noexcept {
  const std::lock_guard lock(mutex_);
  Block& known = blocks_.at(block);
  counts_.live -= known.size;
  const auto pool = pools_.find(known.pool);
  if ((caching_ || known.pool != 0) && pool != pools_.end()) {
    known.live = false;
    pool->second[known.size].push_back(block);
    counts_.cached += known.size;
  } else {
    give_back(block, known);
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

// A pool of a graph keeps its blocks: what was captured will write to them again.
void CachingAllocator::trim() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& [size, blocks] : pools_.at(0)) {
    for (void* const block : blocks) give_back(block, blocks_.at(block));
    blocks.clear();
  }
}

int CachingAllocator::make_pool() {
  const std::lock_guard lock(mutex_);
  pools_[++last_pool_];
  return last_pool_;
}

void CachingAllocator::use_pool(int pool) {
  const std::lock_guard lock(mutex_);
  require(pools_.contains(pool), "allocator: there is no pool {}", pool);
  pool_ = pool;
}

void CachingAllocator::release_pool(int pool) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(pool);
  if (pool == 0 || found == pools_.end()) return;
  for (auto& [size, blocks] : found->second) {
    for (void* const block : blocks) give_back(block, blocks_.at(block));
  }
  pools_.erase(found);
  if (pool_ == pool) pool_ = 0;
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
