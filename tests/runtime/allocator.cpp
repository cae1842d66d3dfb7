#include "runtime/allocator.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <new>
#include <vector>

#include "runtime/host_memory.h"
#include "tests/check.h"
#include "tests/sanitized.h"

namespace weft {
namespace {

TEST_SUITE("runtime") {

TEST_CASE("live, peak and cached bytes are counted") {
  CachingAllocator memory;
  void* const a = memory.allocate(1000);
  void* const b = memory.allocate(5000);
  const MemoryCounts two = memory.counts();
  CHECK(two.live >= 6000);
  CHECK(two.live <= 6000 * 9 / 8 + 128);
  CHECK(two.peak == two.live);
  CHECK(two.cached == 0);
  CHECK(two.system_allocations == 2);
  memory.deallocate(b);
  const MemoryCounts one = memory.counts();
  CHECK(one.live + one.cached == two.live);
  CHECK(one.peak == two.live);
  memory.reset_peak();
  CHECK(memory.counts().peak == one.live);
  memory.deallocate(a);
  CHECK(memory.counts().live == 0);
  memory.trim();
  CHECK(memory.counts().cached == 0);
}

TEST_CASE("a freed block is handed out again without asking the system") {
  CachingAllocator memory;
  void* const first = memory.allocate(3 << 20);
  memory.deallocate(first);
  void* const again = memory.allocate((3 << 20) - 1);
  CHECK(again == first);
  CHECK(memory.counts().cached == 0);
  CHECK(memory.counts().system_allocations == 1);
  memory.deallocate(again);
}

TEST_CASE("blocks of a part of a page share one, and go back together") {
  constexpr std::size_t page = 4096, size = 1024;
  static std::size_t taken = 0, given_back = 0;
  taken = given_back = 0;
  CachingAllocator memory(
      {"a device with pages",
       [](std::size_t bytes) -> void* {
         taken += bytes;
         return ::operator new (bytes, std::align_val_t{64});
       },
       [](void* block, std::size_t) {
         ++given_back;
         ::operator delete (block, std::align_val_t{64});
       },
       [](void* block, unsigned char byte, std::size_t bytes) { std::memset(block, byte, bytes); },
       page});
  memory.set_poison(true);
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) {
    blocks.push_back(memory.allocate(size));
    std::memset(blocks.back(), i, size);  // poison of the next one must not touch it
  }
  for (int i = 0; i < 5; ++i) {
    CHECK(static_cast<char*>(blocks[std::size_t(i)])[0] == i);
    CHECK(static_cast<char*>(blocks[std::size_t(i)])[size - 1] == i);
  }
  CHECK(taken == 2 * page);
  CHECK(memory.counts().system_allocations == 2);
  CHECK(memory.counts().live == 5 * size);
  CHECK(memory.counts().cached == 3 * size);
  memory.deallocate(blocks[0]);
  memory.deallocate(blocks[4]);
  memory.trim();  // only the second page is unused
  CHECK(given_back == 1);
  CHECK(memory.counts().live == 3 * size);
  CHECK(memory.counts().cached == size);
  memory.set_caching(false);  // a carved block waits for its page
  for (const int i : {1, 2, 3}) memory.deallocate(blocks[std::size_t(i)]);
  CHECK(given_back == 1);
  memory.trim();
  CHECK(given_back == 2);
  CHECK(memory.counts().live + memory.counts().cached == 0);
  memory.set_caching(true);
  void* const odd = memory.allocate(1200);  // 1,280 of them: three to a page
  CHECK(memory.counts().cached == 2 * 1280);
  void* const whole = memory.allocate(3 * page / 4);
  CHECK(taken == 3 * page + 3 * page / 4);
  memory.deallocate(whole);
  memory.deallocate(odd);
  memory.trim();
  CHECK(given_back == 4);
  CHECK(memory.counts().cached == 0);
}

TEST_CASE("blocks are aligned, and none is empty") {
  CachingAllocator memory;
  for (const std::size_t bytes : {0u, 1u, 63u, 64u, 65u, 1000u, 3u << 20}) {
    void* const block = memory.allocate(bytes);
    CHECK(block != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
    std::memset(block, 1, bytes);
    memory.deallocate(block);
  }
}

TEST_CASE("poison fills fresh and reused memory with NaN") {
  CachingAllocator memory;
  memory.set_poison(true);
  for (int round = 0; round < 2; ++round) {
    auto* const block = static_cast<double*>(memory.allocate(100 * sizeof(double)));
    for (int i = 0; i < 100; ++i) REQUIRE(std::isnan(block[i]));
    for (int i = 0; i < 100; ++i) block[i] = i;
    memory.deallocate(block);
  }
  CHECK(memory.counts().system_allocations == 1);
}

TEST_CASE("without the cache every block comes from the system and goes back") {
  CachingAllocator memory;
  memory.set_caching(false);
  for (int round = 0; round < 3; ++round) memory.deallocate(memory.allocate(4096));
  CHECK(memory.counts().system_allocations == 3);
  CHECK(memory.counts().cached == 0);
}

// malloc() keeps what is freed between blocks in use, and from the first free() of a large block on
// it takes smaller ones from its heap.
TEST_CASE("trimmed memory is the system's again, with other blocks between") {
  if (skipped_because_sanitizers("keep what is freed")) return;
  const auto resident = [] {
    std::ifstream status("/proc/self/statm");
    i64 total = 0, pages = 0;
    status >> total >> pages;
    return pages * 4096;
  };
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  CachingAllocator memory;
  std::vector<void*> blocks = {memory.allocate(28 * mebibyte)};
  std::vector<std::vector<char>> between;
  memory.deallocate(blocks[0]);
  memory.trim();
  blocks.clear();
  const i64 before = resident();
  for (const std::size_t size : {1, 2, 5, 12, 24, 3, 2, 1, 9, 15}) {
    blocks.push_back(memory.allocate(size * mebibyte));
    std::memset(blocks.back(), 1, size * mebibyte);
    between.emplace_back(50'000);
  }
  const i64 held = resident();
  for (void* const block : blocks) memory.deallocate(block);
  memory.trim();
  CHECK(held - before > i64(70 * mebibyte));
  CHECK(resident() - before < i64(4 * mebibyte));
}

TEST_CASE("what the system cannot give is refused with the counts") {
  CachingAllocator memory;
  CHECK_ERROR(memory.allocate(std::size_t{1} << 60), "the CPU has no");
  CHECK_ERROR(memory.allocate(~std::size_t{0}), "a size is wrong");
  // Linux would grant it, and kill the process that fills it.
  const std::size_t more = available_host_memory() / 16 * 17;
  if (more < std::size_t{1} << 60) CHECK_ERROR(memory.allocate(more), "the CPU has no");
  CHECK(memory.counts().live == 0);
}

TEST_CASE("out of memory: what was wanted, what is held, the largest blocks, what helps") {
  static std::size_t left = 0;
  left = 10000;
  CachingAllocator memory({"a small device",
                           [](std::size_t bytes) -> void* {
                             if (bytes > left) return nullptr;
                             left -= bytes;
                             return ::operator new(bytes);
                           },
                           [](void* block, std::size_t) { ::operator delete(block); },
                           [](void*, unsigned char, std::size_t) {}});
  void *const a = memory.allocate(4096), *const b = memory.allocate(1024);
  CHECK_ERROR(memory.allocate(8192),
              "allocator: a small device has no 8192 bytes left; 5120 bytes are in use in 2 blocks "
              "(the largest: 4096 bytes, 1024 bytes), 5120 bytes were at the peak; use a smaller "
              "model, batch or length, or recompute");
  memory.deallocate(a);
  memory.deallocate(b);
  CHECK(memory.counts().live == 0);
}

TEST_CASE("a pool keeps its blocks to itself until it is released") {
  CachingAllocator memory;
  const int pool = memory.make_pool();
  memory.use_pool(pool);
  void* const inner = memory.allocate(4096);
  memory.use_pool(0);
  memory.deallocate(inner);
  void* const outer = memory.allocate(4096);
  CHECK(outer != inner);
  memory.use_pool(pool);
  CHECK(memory.allocate(4096) == inner);
  memory.use_pool(0);
  memory.trim();
  CHECK(memory.counts().live == 8192);
  memory.release_pool(pool);
  memory.deallocate(inner);  // goes to the system
  CHECK(memory.counts().cached == 0);
  memory.deallocate(outer);
  CHECK(memory.counts().cached == 4096);
  CHECK_ERROR(memory.use_pool(pool), "there is no pool");
}

TEST_CASE("tensors give their bytes back") {
  const std::size_t before = allocator().counts().live;
  {
    const Tensor a = Tensor::empty({100, 100}, DType::f64);
    const Tensor view = a.transpose(0, 1);
    CHECK(allocator().counts().live >= before + 80000);
  }
  CHECK(allocator().counts().live == before);
}

}  // TEST_SUITE("runtime")
}  // namespace
}  // namespace weft
