/* Blocks of one cluster: they meet, and write into each other's shared memory. */
#pragma once
#include <cstdint>
#include "common/mbarrier_sm90a.cuh"

// PTX ISA 9.0, 10.16 %cluster_ctarank
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// 9.7.13.3 barrier.cluster: the arrival is relaxed and publishes nothing. Barriers are published by fence_mbarrier_init; elsewhere it only says that what was
// here has been read, or has come.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// 9.7.9.23 mapa: the same shared address in block `rank` of the cluster
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// 9.7.9.25.4.1 cp.async.bulk from this block's shared memory to another's, counted by a barrier there. Source must outlive the copy.
__device__ __forceinline__ void cluster_copy(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "r"(from), "r"(bytes),
               "r"(barrier)
               : "memory");
}

// 9.7.9.12 st.async: into another block's shared memory, counted by a barrier there
__device__ __forceinline__ void cluster_store(uint32_t to, float v, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(v), "r"(barrier) : "memory");
}
__device__ __forceinline__ void cluster_store_2(uint32_t to, float x, float y, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to), "f"(x), "f"(y), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void cluster_store_4(uint32_t to, float4 v, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w), "r"(barrier)
               : "memory");
}

// 9.7.13.15.13 mbarrier.arrive at another block's barrier: what this thread has read or written in shared memory is done with
__device__ __forceinline__ void cluster_signal(uint32_t barrier_there) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier_there) : "memory");
}
// The same, and what it has written to memory is there for whoever waits by cluster_wait_or_fault: a fence of the whole device, 0.4 us
__device__ __forceinline__ void cluster_signal_released(uint32_t barrier_there) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier_there) : "memory");
}
// Waits for such a signal.
__device__ __forceinline__ void cluster_wait_or_fault(uint32_t barrier, uint32_t parity) {
  for (uint32_t tries = 0; !cluster_try_wait(barrier, parity);) bound<MOST_TRIES>(++tries);
}
