// What the emulated device tells the recorder of memory accesses (accesses/), in a build with
// -Daccesses=true. In others `seen` is false and none of these is called.
#pragma once

#include <cstddef>

#include "runtime/cuda/emulated/block.h"

namespace weft::emulated {
inline constexpr std::size_t guard =
    256;  // bytes on both sides of an allocation, also its alignment
}

namespace weft::emulated::accesses {

inline constexpr bool seen = WEFT_ACCESSES;

// Between these a stream does something: what the host writes then, it writes for the stream.
void watch_stream(bool works);
// Runs the work of a launch, blocks one after the other. Throws std::runtime_error where something was
// found, a line each, with the error of the work itself before it.
void watch_launch(const void* kernel, Extent grid, Extent block, const std::function<void()>& work);
void block_begins(Extent index, const std::byte* shared, std::size_t shared_bytes);
void block_ends();

// Which thread of the block runs from now on, and on which stack; and that none does.
void thread_runs(unsigned thread, const void* stack, std::size_t stack_bytes);
void none_runs();

// All threads of the block have reached a barrier.
void barrier_passed(const std::source_location& site);
// Lanes of a warp have met, the first of them thread `first`. A __syncwarp orders their accesses to
// memory; a shuffle or a vote does not.
void lanes_met(unsigned first, unsigned mask, bool orders_memory);

// Global memory. What is allocated has been written by nobody.
void allocated(const std::byte* begin, std::size_t bytes);
void freed(const std::byte* begin);
// The host, or a library, wrote, set or copied.
void host_wrote(const void* begin, std::size_t bytes);
void host_set(const void* begin, int byte, std::size_t bytes);
void host_copied(const void* to, const void* from, std::size_t bytes);

// An atomic operation of the running thread, which returns to `pc`.
void atomic_access(const void* at, std::size_t bytes, const void* pc);

}  // namespace weft::emulated::accesses
