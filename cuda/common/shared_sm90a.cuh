/* The dynamic shared memory of a block on sm_90a. */
#pragma once
#include <cstdint>

#include "common/address.cuh"

constexpr int MOST_SHARED = 232448;     // bytes that a block may have
constexpr int SHARED_ALIGNMENT = 1024;  // what the 128-byte swizzle repeats after; a launch has as many bytes more, as room to align

extern __shared__ uint8_t dynamic_shared[];

// Its first place that is aligned
__device__ __forceinline__ uint32_t shared_base() { return (shared_address(dynamic_shared) + SHARED_ALIGNMENT - 1) & ~(SHARED_ALIGNMENT - 1); }
