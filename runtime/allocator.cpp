#include "runtime/allocator.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <functional>

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/dispatch.h"
#include "runtime/error.h"
#include "runtime/host_memory.h"
#include "runtime/listed.h"

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

// Linux grants more than there is, and kills the process that fills it. It is asked what there is
// once for every so many bytes: to fill those takes far longer than to read /proc.
constexpr std::size_t between_questions = std::size_t{64} << 20;

bool is_there(std::size_t bytes) {
  static std::atomic<std::size_t> unasked = 0;
  if ((unasked += bytes) < between_questions) return true;
  if (bytes > available_host_memory()) return false;
  unasked = 0;
  return true;
}

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Large blocks are mapped, so that they are given back whole and at once: free() would keep them in
// malloc's heap, where the next larger one does not fit.
constexpr std::size_t least_mapped = huge_page / 2;

std::size_t mapped_alignment(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes >= huge_page ? huge_page : page;
}

void* mapped(std::size_t bytes) {
  const std::size_t align = mapped_alignment(bytes), size = rounded_up(bytes, align);
  void* const all =
      mmap(nullptr, size + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(all);
  const std::size_t before = rounded_up(reinterpret_cast<std::uintptr_t>(all), align) -
                             reinterpret_cast<std::uintptr_t>(all);
  if (before > 0) munmap(begin, before);
  munmap(begin + before + size, align - before);
  if (align == huge_page) madvise(begin + before, size, MADV_HUGEPAGE);
  return begin + before;
}

void* from_system(std::size_t bytes) {
  if (!is_there(bytes)) return nullptr;
  return bytes >= least_mapped ? mapped(bytes)
                               : std::aligned_alloc(alignment, rounded_up(bytes, alignment));
}

void to_system(void* block, std::size_t bytes) {
  if (bytes >= least_mapped) {
    munmap(block, rounded_up(bytes, mapped_alignment(bytes)));
  } else {
    std::free(block);
  }
}

// "8192 bytes", "12.50 MiB".
std::string amount(std::size_t bytes) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  if (bytes < mebibyte) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / mebibyte);
}

void fill_memory(void* block, unsigned char byte, std::size_t bytes) {
  std::memset(block, byte, bytes);
}

}  // namespace

const MemorySource host_memory{"the CPU", from_system, to_system, fill_memory, huge_page};

std::string CachingAllocator::report(std::size_t wanted) const {
  std::vector<std::size_t> sizes;
  for (const auto& [block, known] : blocks_) {
    if (known.live) sizes.push_back(known.size);
  }
  constexpr std::size_t shown = 5;
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  std::vector<std::string> largest;
  for (std::size_t i = 0; i < std::min(sizes.size(), shown); ++i) {
    largest.push_back(amount(sizes[i]));
  }
  return fmt::format(
      "allocator: {} has no {} left; {} are in use in {} blocks (the largest: {}), {} were at the "
      "peak; use a smaller model, batch or length, or recompute",
      source_.name, amount(wanted), amount(counts_.live), sizes.size(), listed(largest),
      amount(counts_.peak));
}

// Asks the system; when it has no more, gives the common cache back and asks once again.
void* CachingAllocator::ask(std::size_t bytes) {
  ++counts_.system_allocations;
  void* block = source_.allocate(bytes);
  if (block == nullptr) {
    give_back_all(pools_.at(0));
    block = source_.allocate(bytes);
  }
  return block;
}

// A new block. Blocks of an eighth to a half of a huge page are carved from one page, which saves
// TLB misses. Graph pools do not carve pages.
void* CachingAllocator::from_source(std::size_t size) {
  const bool cut = caching_ && pool_ == 0 && size >= source_.page / 8 && size <= source_.page / 2;
  void* const page = cut ? ask(source_.page) : nullptr;
  void* const block = page != nullptr ? page : ask(size);
  if (block == nullptr) throw OutOfMemory(report(size));
  blocks_[block] = {size, pool_, true, page};
  if (page == nullptr) return block;
  auto& others = pools_.at(0)[size];
  for (std::size_t at = source_.page / size * size; (at -= size) > 0;) {
    void* const other = static_cast<char*>(page) + at;
    blocks_[other] = {size, 0, false, page};
    others.push_back(other);
    counts_.cached += size;
  }
  return block;
}

// Returns a block that is in no cache any more to the system.
void CachingAllocator::give_back(void* block) {
  const Block& known = blocks_.at(block);
  if (!known.live) counts_.cached -= known.size;
  if (known.page == nullptr) {
    source_.release(block, known.size);
  } else if (known.page == block) {
    source_.release(block, source_.page);
  }
  blocks_.erase(block);
}

// Returns all cached blocks to the system; a carved page only once all of its blocks are cached.
void CachingAllocator::give_back_all(Cache& cache) {
  for (auto& [bytes, blocks] : cache) {
    const std::size_t size = bytes;  // clang 14 captures no structured binding
    std::unordered_map<void*, std::size_t> unused;
    for (void* const block : blocks) unused[blocks_.at(block).page] += size;
    std::erase_if(blocks, [&](void* block) {
      void* const page = blocks_.at(block).page;
      if (page != nullptr && unused[page] + size <= source_.page) return false;
      give_back(block);
      return true;
    });
  }
}

void* CachingAllocator::allocate(std::size_t bytes) {
  require(bytes < (std::size_t{1} << 61), "allocator: {} bytes were asked for; a size is wrong",
          bytes);
  std::size_t size = std::max<std::size_t>(bytes, 1);
  void* block = nullptr;
  bool poison = false;
  {
    const std::lock_guard lock(mutex_);
    if (caching_ || pool_ != 0) size = size_class(bytes);
    auto& blocks = pools_.at(pool_)[size];
    if (!blocks.empty()) {
      block = blocks.back();
      blocks.pop_back();
      counts_.cached -= size;
      blocks_.at(block).live = true;
    } else {
      block = from_source(size);
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
  if ((caching_ || known.pool != 0 || known.page != nullptr) && pool != pools_.end()) {
    known.live = false;
    pool->second[known.size].push_back(block);
    counts_.cached += known.size;
  } else {
    give_back(block);
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

// A graph's pool keeps its blocks: each replay writes to them again.
void CachingAllocator::trim() noexcept {
  const std::lock_guard lock(mutex_);
  give_back_all(pools_.at(0));
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
  give_back_all(found->second);
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
  // Never destroyed: tensors with static storage duration may be destroyed later than any static
  // object.
  static auto* const cpu = new CachingAllocator(host_memory);
  return *cpu;
}

}  // namespace weft
