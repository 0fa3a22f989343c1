/* Copies of 16 bytes into shared memory that pass no registers, for plain pointers. PTX ISA 9.0, 9.7.9.25.2 (cp.async). */
#pragma once
#include <cstdint>

__device__ __forceinline__ void copy_async_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
