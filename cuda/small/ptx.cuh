/* The PTX that only this folder uses in several places, one wrapper each, with the section of the PTX ISA 9.0 it comes
   from; and what of common/ takes addresses in shared memory, for pointers. */
#pragma once

#include <cstdint>

#include "common/address.cuh"
#include "common/mbarrier_sm90a.cuh"
#include "common/mma_sm80.cuh"
#include "common/tma_sm90a.cuh"

namespace small {

__device__ __forceinline__ void barrier_expect(uint64_t* bar, int bytes) {
  mbarrier_expect(shared_address(bar), bytes);
}
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap* map, int x, int y, int z, int w, uint64_t* bar) {
  tma_load_4d(shared_address(to), map, x, y, z, w, shared_address(bar));
}
__device__ __forceinline__ void copy_run(void* to, const void* from, int bytes, uint64_t* bar) {
  bulk_load(shared_address(to), from, bytes, shared_address(bar));
}
__device__ __forceinline__ void barrier_wait(uint64_t* bar, uint32_t parity) {
  mbarrier_wait(shared_address(bar), parity);
}

// 9.7.9.8, ld.relaxed, and 9.7.9.11, st.relaxed: strong accesses at the scope of the device, so never served by a stale
// L1 line
__device__ __forceinline__ uint4 load_strong(const void* p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_strong_word(const void* p) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_strong(void* p, uint4 v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ void store_strong(void* p, uint2 v) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}

__device__ __forceinline__ uint2 load_strong_pair(const void* p) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_strong(void* p, uint32_t v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// 9.7.13.6, red.relaxed: as strong, and nothing written before is told with it
__device__ __forceinline__ void add_strong(uint32_t* p, uint32_t v) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// 9.7.9.8, ld: ordinary loads that stay where they are written, ahead of a wait
__device__ __forceinline__ float4 load_early(const float* p) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ float2 load_early_pair(const float* p) {
  float2 v;
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
  return v;
}
__device__ __forceinline__ float load_early_word(const float* p) {
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}

// 9.7.9.21, cvt: two numbers cut, not rounded, to fp16
__device__ __forceinline__ uint32_t cut_half2(float low, float high) {
  uint32_t v;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
}

// d += a b with fp16 operands and fp32 sums
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint2 b) { MmaSm80::mma(d, a, b.x, b.y); }

}  // namespace small
