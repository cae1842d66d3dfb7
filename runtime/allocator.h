// The caching allocator of one device.
//
// Freed blocks are kept by size class (eight classes an octave) and reused, so that a training step
// stops asking the system for memory after one or two runs. Blocks of an eighth to a half of a huge
// page are carved from one page. The counts are of rounded bytes; the memory curves and the memory
// tests read them.
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
  std::uint64_t system_allocations = 0;  // calls of the system's allocator
};

// Where a device's bytes come from.
struct MemorySource {
  const char* name;  // for messages
  void* (*allocate)(std::size_t bytes);  // null when there is no more
  void (*release)(void* block, std::size_t bytes);  // what allocate(bytes) returned
  void (*fill)(void* block, unsigned char byte, std::size_t bytes);
  std::size_t page = 0;  // bytes of a page that blocks are carved from; 0: none
};

extern const MemorySource host_memory;

class CachingAllocator {
 public:
  explicit CachingAllocator(const MemorySource& source = host_memory) : source_(source) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  ~CachingAllocator() { trim(); }

  // At least `bytes` bytes, aligned to 64. When the system has no more, throws OutOfMemory with the
  // bytes wanted, the bytes in use and the largest blocks in use.
  void* allocate(std::size_t bytes);
  void deallocate(void* block) noexcept;

  MemoryCounts counts() const;
  void reset_peak();
  void trim() noexcept;  // returns every cached block to the system

  // A pool is a cache of its own: while it is in use, blocks come from it, and they return to it
  // whenever they are freed. Each captured graph of kernels has one, so that no other tensor gets
  // the memory in which the graph is replayed. Pool 0 is the common one.
  int make_pool();
  void use_pool(int pool);
  void release_pool(int pool) noexcept;  // frees its blocks, those in use later

  // Fills fresh memory with NaN (bytes 0xff: a NaN in every floating type), so that an element that
  // a kernel forgets to write is noticed. Tests turn this on.
  void set_poison(bool poison);
  // Without the cache every block comes from the system, not rounded to its size class, so that
  // sanitizers and the emulated device's guards see a read or write beyond it.
  void set_caching(bool caching);

 private:
  struct Block {
    std::size_t size;
    int pool;
    bool live;
    void* page;  // the page it was carved from; null: none
  };
  using Cache = std::unordered_map<std::size_t, std::vector<void*>>;

  std::string report(std::size_t wanted) const;
  void* ask(std::size_t bytes);
  void* from_source(std::size_t size);
  void give_back(void* block);
  void give_back_all(Cache& cache);

  MemorySource source_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;  // all blocks from the system
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
