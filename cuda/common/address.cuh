/* Addresses. */
#pragma once
#include <cstdint>

// In shared memory, as instructions take it
__device__ __forceinline__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Whether loads of 16 bytes may begin there. For a call nvcc chooses other loads where it is spelt out instead (cast/cast_kernels.cuh, and in exact/).
__device__ __forceinline__ bool aligned_16(const void* p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }
