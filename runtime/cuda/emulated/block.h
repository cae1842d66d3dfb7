// The threads of a GPU's block, run by one thread of the CPU.
//
// Each thread of the block is a fiber (Boost.Context). It runs until it has to wait for others, at
// a barrier of the block or at an exchange inside its warp of 32, and then yields; it is never
// preempted. Blocks run one after the other. What is undefined behaviour on a GPU is an error that
// names block, threads and line:
//
//     a barrier that not all threads reach: some have ended, wait elsewhere, or reach another line
//     an exchange whose mask holds a lane that has ended, waits at a barrier, or is at another one,
//       or that does not hold its own caller
//     a shuffle from a lane outside of the mask
//     a use of shared memory that an asynchronous copy is still filling, as far as instructions
//       of the emulated device show it (a build with -Daccesses=true sees every access)
//
// A race shows as a result that depends on the order of the threads: set_order() runs them
// ascending, descending, or at random, reordered after each wait, with some warps held back while
// others get ahead; and the blocks of a grid in the same way. A kernel is right when the bits are
// the same for all orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>

namespace weft::emulated {

constexpr unsigned warp_size = 32, most_threads = 1024;
// The shared memory of a block on compute capability 9.0; and what needs no opt-in.
constexpr std::size_t most_shared_bytes = 227 * 1024, shared_bytes_unasked = 48 * 1024;

enum class Order { ascending, descending, random };
void set_order(Order order, std::uint64_t seed = 0);

// Runs `thread` as every thread of every block, each block with `shared_bytes` of shared memory
// that is filled with NaN (bytes 0xff) first. Throws std::runtime_error where a rule above is
// broken.
struct Extent {
  unsigned x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};
void run_grid(Extent grid, Extent block, std::size_t shared_bytes,
              const std::function<void()>& thread);

// The functions below are called by a thread of a block.

inline constexpr std::size_t shared_alignment = 128;
std::byte* shared_bytes();

// Waits for all threads of the block; returns how many of them passed a true `predicate`.
unsigned barrier(bool predicate, const std::source_location& site);

// What lanes exchange: each gives 64 bits, and gets those of the lane `from` (shuffle), or the set
// of lanes that gave other than 0 (vote), or of those that gave the same bits (match). `order`
// exchanges nothing: it is a __syncwarp in builds that record accesses. `operands` is together().
enum class Exchange { shuffle, vote, match, order, operands };
std::uint64_t exchange(Exchange kind, unsigned mask, std::uint64_t value, unsigned from,
                       const std::source_location& site);

// An instruction of a whole warp. Each of the 32 lanes gives the address of its operands and
// results; when all are there, one of them calls work() with the addresses of lanes 0 … 31.
using OfLanes = void* const (&)[warp_size];
void together(void* own, void (*work)(OfLanes), const std::source_location& site);

// Copies of 16 bytes from global to shared memory that go on while the thread does. start_copy()
// fills the destination with bytes 0xff; the first `bytes` bytes of the source, and zeros behind
// them, arrive when the thread waits for the group that the copy was committed to. `pc` is the
// address of the instruction, for reports.
struct Copy {
  const std::byte* from = nullptr;
  unsigned bytes = 0, thread = 0;
  const void* pc = nullptr;
  std::source_location site = {};
};
void start_copy(void* to, const void* from, unsigned bytes, const void* pc,
                const std::source_location& site);
void commit_copies();
void wait_for_copies(unsigned groups_left);  // all but the last `groups_left` groups
// The copy that is filling one of these bytes; null if none is.
const Copy* copy_filling(const void* at, std::size_t bytes);

// Throws, naming thread, line and instruction, unless the address is a multiple of 16; and unless
// no copy is filling the 16 bytes there.
void require_aligned(const void* at, const char* instruction, const std::source_location& site);
void require_filled(const void* at, const char* instruction, const std::source_location& site);

unsigned lane();  // of the running thread in its warp

}  // namespace weft::emulated
