// What GCC's -fsanitize=thread calls before each access to memory, where libtsan is not linked. The
// names and arguments are the compiler's.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/cuda/emulated/accesses/recorder.h"

using weft::emulated::accesses::access;
using weft::emulated::accesses::access_of_call;
using weft::emulated::accesses::Kind;

// Called by the compiler's instrumentation. `aligned`: N bytes of a type that is aligned to N.
#define WEFT_HOOK(name, bytes, kind, aligned)                            \
  void __tsan_##name##bytes(void* at) {                                  \
    access(at, bytes, Kind::kind, aligned, __builtin_return_address(0)); \
  }
#define WEFT_HOOKS(bytes)                         \
  WEFT_HOOK(read, bytes, read, true)              \
  WEFT_HOOK(write, bytes, write, true)            \
  WEFT_HOOK(unaligned_read, bytes, read, false)   \
  WEFT_HOOK(unaligned_write, bytes, write, false) \
  WEFT_HOOK(volatile_read, bytes, read, true)     \
  WEFT_HOOK(volatile_write, bytes, write, true)

extern "C" {

WEFT_HOOKS(1)
WEFT_HOOKS(2)
WEFT_HOOKS(4)
WEFT_HOOKS(8)
WEFT_HOOKS(16)

void __tsan_read_range(void* at, std::size_t bytes) {
  access(at, bytes, Kind::read, false, __builtin_return_address(0));
}
void __tsan_write_range(void* at, std::size_t bytes) {
  access(at, bytes, Kind::write, false, __builtin_return_address(0));
}
// Atomic operations of host code, which a test compiles beside its kernels.
#define WEFT_ATOMICS(bits, T)                                                                      \
  T __tsan_atomic##bits##_load(const T* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); } \
  void __tsan_atomic##bits##_store(T* at, T x, int) { __atomic_store_n(at, x, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_add(T* at, T x, int) {                                             \
    return __atomic_fetch_add(at, x, __ATOMIC_SEQ_CST);                                            \
  }
WEFT_ATOMICS(8, std::uint8_t)
WEFT_ATOMICS(32, std::uint32_t)
WEFT_ATOMICS(64, std::uint64_t)

void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

// The linker replaces calls of memcpy by calls of this (--wrap): the compiler does not report them.
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int byte, std::size_t bytes);

void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  access_of_call(from, bytes, Kind::read, __builtin_return_address(0));
  access_of_call(to, bytes, Kind::write, __builtin_return_address(0));
  return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  access_of_call(from, bytes, Kind::read, __builtin_return_address(0));
  access_of_call(to, bytes, Kind::write, __builtin_return_address(0));
  return __real_memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int byte, std::size_t bytes) {
  access_of_call(to, bytes, Kind::write, __builtin_return_address(0));
  return __real_memset(to, byte, bytes);
}

}  // extern "C"
