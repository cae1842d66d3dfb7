// What is known of every access of a kernel to memory, as the hooks of the compiler report them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/cuda/emulated/accesses.h"

namespace weft::emulated::accesses {

// What is looked for; the environment variable WEFT_ACCESSES says it: races, or the same as
// `report`, which prints what is found instead of failing the launch; traffic=FILE; or off.
enum class Mode { off, races, report, traffic };
void set_mode(Mode mode);

enum class Kind : std::uint8_t { read, write, atomic };
enum class Space : std::uint8_t { global, shared };

// One element of one thread. `instruction` is the return address of the hook, numbered as it comes.
struct Access {
  const std::byte* at;
  std::uint32_t bytes;
  Kind kind;
  std::uint32_t instruction;
  bool part =
      false;  // of a struct or of what memcpy copies, where padding is read that nobody wrote
};

// Bytes that kernels may access: an allocation with the guards around it, the shared memory that a
// launch asked for, or the data of a program or library, where __shared__ variables stand.
struct Shadow;
struct Region {
  const std::byte* begin;
  std::size_t bytes, guard;
  Space space;
  bool dynamic;                            // shared memory that a launch asked for
  mutable std::shared_ptr<Shadow> shadow;  // what races.cpp knows of each word

  bool holds(const std::byte* at) const {
    return at + guard >= begin && at < begin + bytes + guard;
  }
};

// Where the running block is, for what is said of it.
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

// Called by the hooks: an access of `bytes` at `at` by what returns to `pc`. Where `aligned`, the
// device does it by one instruction, and the address has to be a multiple of the bytes; otherwise
// by words of 4 bytes, or by bytes where it does not begin at a word.
void access(const void* at, std::size_t bytes, Kind kind, bool aligned, const void* pc);
// The same by words, of a thread of a kernel only: any code of the program calls memcpy.
void access_of_call(const void* at, std::size_t bytes, Kind kind, const void* pc);

}  // namespace weft::emulated::accesses
