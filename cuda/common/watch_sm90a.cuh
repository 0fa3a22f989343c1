/* Watching weights on their way through a product, two at a time as the fp16 that they have become: half the work of an
   Observation in fp32, which adds up to microseconds where products wait for their weights. What is beyond fp16 counts
   as infinite, what vanishes in it as zero. */
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "common/alarm.cuh"

// CHAINS: of instructions that wait for each other; a thread that waits for memory anyway needs but one
template <int CHAINS = 2>
struct HalfObservation {
  uint32_t largest[CHAINS] = {}, squares[CHAINS] = {};

  // PTX ISA 9.0, 9.7.4.8 max.xorsign.abs (its sign does not matter) and 9.7.4.4 fma
  __device__ __forceinline__ static void see(uint32_t& largest, uint32_t& squares, uint32_t pair) {
    asm("max.xorsign.abs.f16x2 %0, %0, %1;" : "+r"(largest) : "r"(pair));
    asm("fma.rn.f16x2 %0, %1, %1, %0;" : "+r"(squares) : "r"(pair));
  }
  __device__ __forceinline__ void add(uint32_t low, uint32_t high) {
    see(largest[0], squares[0], low);
    see(largest[CHAINS - 1], squares[CHAINS - 1], high);
  }

  // The squares of a few dozen usual weights in fp16, and all others in fp32
  __device__ __forceinline__ void move_to(Observation& all) {
#pragma unroll
    for (int i = 0; i < CHAINS; i++) {
      const float2 l = __half22float2(*reinterpret_cast<const __half2*>(&largest[i]));
      const float2 s = __half22float2(*reinterpret_cast<const __half2*>(&squares[i]));
      all.largest = fmaxf(all.largest, fmaxf(fabsf(l.x), fabsf(l.y)));
      all.squares += s.x + s.y;
      largest[i] = squares[i] = 0;
    }
  }
};
