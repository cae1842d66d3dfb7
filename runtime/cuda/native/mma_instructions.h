// The instructions of runtime/cuda/mma.cuh, in CUDA.
#pragma once

#include <cstdint>

namespace weft {

__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

__device__ __forceinline__ float exp2_flushed(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

using SharedAddress = unsigned;
// By way of a shuffle, which keeps it in a register: the compiler would compute the address of the
// block's shared memory again before every use.
__device__ __forceinline__ SharedAddress shared_address(const void* at) {
  return __shfl_sync(0xffffffffu, static_cast<unsigned>(__cvta_generic_to_shared(at)), 0);
}
__device__ __forceinline__ SharedAddress flip(SharedAddress at, unsigned bits) { return at ^ bits; }

__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&m)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row));
}
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&m)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row));
}

__device__ __forceinline__ void cp_async(SharedAddress to, const void* from, unsigned bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes));
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}
template <int groups_left>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(groups_left) : "memory");
}

}  // namespace weft
