/* Copies of 16 or 4 bytes into shared memory that pass no registers, for plain pointers, and loads that stay where they are written. PTX ISA 9.0,
   9.7.9.25.3.1 (cp.async) and .3 (wait), 9.7.9.9 (ld.global.nc) and 9.7.9.8 (ld). */
#pragma once
#include <cstdint>

__device__ __forceinline__ void copy_async_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_async_4(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// 9.7.13.15.15 cp.async.mbarrier.arrive: this thread arrives when its copies so far have
__device__ __forceinline__ void copy_async_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Of inputs, which no kernel writes: may stand in front of pdl_wait()
__device__ __forceinline__ float load_input(const float* p) {
  float v;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}

// Four neighbours
template <bool ALIGNED>
__device__ __forceinline__ float4 fetch_4(const float* p) {
  float4 v;
  if (ALIGNED)
    asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  else
    asm volatile("ld.global.nc.f32 %0, [%4];\nld.global.nc.f32 %1, [%4 + 4];\nld.global.nc.f32 %2, [%4 + 8];\nld.global.nc.f32 %3, [%4 + 12];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p));
  return v;
}

// Volatile, so that they stay behind the accumulators' last use: moved up across it, a batch of them would spill
__device__ __forceinline__ float4 load_here_4(const float* p) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ float2 load_here_2(const float* p) {
  float2 v;
  asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
  return v;
}
