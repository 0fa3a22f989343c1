/* A barrier for part of a block. PTX ISA 9.0, section 9.7.13.1, "bar". */
#pragma once

// Waits until THREADS threads, whole warps, have come to barrier `id` (1 to 15; 0 is __syncthreads), and orders memory.
template <int THREADS>
__device__ void barrier(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}
