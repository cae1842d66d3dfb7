// The caching allocator of one device.
//
// Freed blocks are kept by size class (eight classes an octave) and handed out again, so that a
// training step stops asking the system for memory after it has run once or twice. Blocks of an
// eighth to a half of a huge page are cut from one. Counts are of rounded bytes; the memory curves
// and the memory tests read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/device.h"

namespace weft {

struct MemoryCounts {
  std::size_t live = 0;    // bytes in use now
  std::size_t peak = 0;    // most bytes in use since reset_peak()
  std::size_t cached = 0;  // bytes held for reuse
  std::uint64_t system_allocations = 0;  // times that the system was asked
};

// Where a device's bytes come from.
struct MemorySource {
  const char* name;  // for messages
  void* (*allocate)(std::size_t bytes);  // null where there are no more
  void (*release)(void* block);
  void (*fill)(void* block, unsigned char byte, std::size_t bytes);
  std::size_t page = 0;  // bytes of a page that several blocks share; 0: none do
};

extern const MemorySource host_memory;

class CachingAllocator {
 public:
  explicit CachingAllocator(const MemorySource& source = host_memory) : source_(source) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  ~CachingAllocator() { trim(); }

  // At least `bytes` bytes aligned to 64. Throws Error, with what was wanted, what is held and the
  // largest blocks in use, where the system has no more.
  void* allocate(std::size_t bytes);
  void deallocate(void* block) noexcept;

  MemoryCounts counts() const;
  void reset_peak();
  void trim() noexcept;  // gives every cached block back to the system

  // A pool is a cache of its own: while one is in use, blocks come from it, and whenever they are
  // freed they go back to it. A captured graph of kernels has one, so that nobody else gets the
  // memory in which it is replayed. Pool 0 is the common one.
  int make_pool();
  void use_pool(int pool);
  void release_pool(int pool) noexcept;  // its blocks go, those in use once they are freed

  // Fresh memory is filled with NaN (bytes 0xff: a NaN in every floating type), so that an element
  // that a kernel forgets to write shows. Tests turn this on.
  void set_poison(bool poison);
  // Without the cache every block comes from the system: address sanitizers then see each one.
  void set_caching(bool caching);

 private:
  struct Block {
    std::size_t size;
    int pool;
    bool live;
    void* page;  // that the block was cut from, beside others of its size; null: it is whole
  };
  using Cache = std::unordered_map<std::size_t, std::vector<void*>>;

  std::string report(std::size_t wanted) const;
  void* ask(std::size_t bytes);
  void* from_source(std::size_t size);
  void give_back(void* block);
  void give_back_all(Cache& cache);

  MemorySource source_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;  // all that the system gave
  std::unordered_map<int, Cache> pools_{{0, {}}};
  int pool_ = 0, last_pool_ = 0;
  MemoryCounts counts_;
  bool poison_ = false;
  bool caching_ = true;
};

// The allocator of `device`; lives until the program ends.
CachingAllocator& allocator(Device device = {});
CachingAllocator& allocator_of(const Cpu&);
CachingAllocator& allocator_of(const Cuda&);

}  // namespace weft
