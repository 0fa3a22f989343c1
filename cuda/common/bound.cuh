/* The end of a wait that never ends: the kernel faults, by a store to address 0, and the caller gets an error instead of a hung device. Not by a trap: one
   that two roles of a kernel with setmaxnreg can reach makes ptxas ignore that, so that consumers spill, and where products are in flight ptxas waits for
   them in front of it (C7517). */
#pragma once
#include <cstdint>

constexpr uint32_t MOST_TRIES = 1000000000;  // of a wait for what the kernels before may take long to do: minutes

// PTX ISA 9.0, 9.7.9.11 st
template <uint32_t MOST>
__device__ __forceinline__ void bound(uint32_t looks) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .u64 nowhere;\n"
      "setp.gt.u32 p, %0, %1;\n"
      "mov.u64 nowhere, 0;\n"
      "@p st.global.u32 [nowhere], %0;\n}\n" ::"r"(looks),
      "n"(MOST));
}
