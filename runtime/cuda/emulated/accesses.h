// What the emulated device tells the recorder of memory accesses (accesses/), in a build with
// -Daccesses=true. In other builds `seen` is false and none of these is called.
#pragma once

#include <cstddef>

#include "runtime/cuda/emulated/block.h"

namespace weft::emulated {
inline constexpr std::size_t guard =
    256;  // bytes on both sides of an allocation, also its alignment
}

namespace weft::emulated::accesses {

inline constexpr bool seen = WEFT_ACCESSES;

// While `works` is true, what the host writes is written for the stream.
void watch_stream(bool works);
// Runs a launch, blocks one after the other. Throws std::runtime_error with one line for each fault
// found, after the error of the kernel itself, if there was one.
void watch_launch(const void* kernel, Extent grid, Extent block, const std::function<void()>& work);
void block_begins(Extent index, const std::byte* shared, std::size_t shared_bytes);
void block_ends();

// The thread of the block that runs from now on, and its stack; or that none runs.
void thread_runs(unsigned thread, const void* stack, std::size_t stack_bytes);
void none_runs();

// All threads of the block have reached a barrier.
void barrier_passed(const std::source_location& site);
// Lanes of a warp have met; thread `first` is lane 0. A __syncwarp orders their accesses to memory;
// a shuffle or a vote does not.
void lanes_met(unsigned first, unsigned mask, bool orders_memory);

// Global memory. Freshly allocated bytes count as unwritten.
void allocated(const std::byte* begin, std::size_t bytes);
void freed(const std::byte* begin);
// The host, or a library, wrote, set or copied these bytes.
void host_wrote(const void* begin, std::size_t bytes);
void host_set(const void* begin, int byte, std::size_t bytes);
void host_copied(const void* to, const void* from, std::size_t bytes);

// A read by an instruction of the emulated device, for the running thread; `pc` is its return
// address. And an asynchronous copy of `bytes` bytes to 16 bytes of shared memory: it may write
// them from its beginning on, and other threads may read them when it has arrived and a barrier
// was passed.
void instruction_reads(const void* at, std::size_t bytes, const void* pc);
void copy_started(const void* to, const void* from, std::size_t bytes, const void* pc);
void copy_arrived(const void* to, const void* pc);

// An atomic operation of the running thread; `pc` is its return address.
void atomic_access(const void* at, std::size_t bytes, const void* pc);

}  // namespace weft::emulated::accesses
