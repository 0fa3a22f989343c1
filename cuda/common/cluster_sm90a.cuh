/* Blocks of one cluster: they meet, and write into each other's shared memory. */
#pragma once
#include <cstdint>

// PTX ISA 9.0, 10 special registers
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// 9.7.13.3 barrier.cluster: relaxed arrival, for use after fence_mbarrier_init
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// 9.7.9.23 mapa: the same shared address in block `rank` of the cluster
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// 9.7.9.12 st.async: eight bytes, counted by the barrier of the receiving block
__device__ __forceinline__ void cluster_store_2(uint32_t to, float x, float y, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to), "f"(x), "f"(y), "r"(barrier)
               : "memory");
}
