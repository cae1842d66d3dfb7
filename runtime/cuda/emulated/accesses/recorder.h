// What is known of every memory access of a kernel, as the compiler's hooks report it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/cuda/emulated/accesses.h"

namespace weft::emulated::accesses {

// What is checked, from the environment variable WEFT_ACCESSES: races; report, which is races, but
// prints what is found instead of failing the launch; traffic=FILE; off.
enum class Mode { off, races, report, traffic };
void set_mode(Mode mode);

enum class Kind : std::uint8_t { read, write, atomic };
enum class Space : std::uint8_t { global, shared };

// One access by one thread. `instruction` numbers the return addresses of the hooks.
struct Access {
  const std::byte* at;
  std::uint32_t bytes;
  Kind kind;
  std::uint32_t instruction;
  bool part = false;  // copies of structs and memcpy, which read padding that nobody wrote
};

// Bytes that kernels may access: an allocation with the guards around it, the shared memory that a
// launch asked for, or the data section of a program or library, which holds __shared__ variables.
struct Shadow;
struct Region {
  const std::byte* begin;
  std::size_t bytes, guard;
  Space space;
  bool dynamic;                            // shared memory sized by the launch
  mutable std::shared_ptr<Shadow> shadow;  // what races.cpp knows of each word

  bool holds(const std::byte* at) const {
    return at + guard >= begin && at < begin + bytes + guard;
  }
};

// The running block, for reports.
struct Launched {
  const void* kernel = nullptr;
  Extent grid, block, index;
  std::uint32_t number = 0;  // of the block in its grid

  unsigned threads() const { return static_cast<unsigned>(block.count()); }
};
const Launched& launched();

// The running thread of the block.
unsigned running_thread();

const void* address_of(std::uint32_t instruction);

// Called by the hooks: an access of `bytes` bytes at `at` by the code that returns to `pc`. If
// `aligned`, the device does it by one instruction, and the address has to be a multiple of the
// bytes; otherwise by words of 4 bytes, or by single bytes where it does not begin at a word.
void access(const void* at, std::size_t bytes, Kind kind, bool aligned, const void* pc);
// The same for memcpy, word by word, and only inside a kernel: any code of the program calls
// memcpy.
void access_of_call(const void* at, std::size_t bytes, Kind kind, const void* pc);

}  // namespace weft::emulated::accesses
