/* The bulk copy engine: tiles by tensor map, plain runs of bytes, and stores. PTX ISA 9.0, 9.7.9.25.
   Coordinates run from the innermost dimension outwards. What a load reads outside the tensor is zero, what a store writes there is dropped. */
#pragma once
#include <cuda.h>
#include <cstdint>

// 9.7.9.15 prefetch
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// 9.7.9.18 createpolicy: what is read so leaves L2 first
__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// 9.7.9.25.5.2 cp.async.bulk.tensor, global to shared
__device__ __forceinline__ void tma_load_2d(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(map), "r"(x), "r"(y), "r"(barrier)
               : "memory");
}
// The same for what nobody reads after this kernel: it leaves L2 first
__device__ __forceinline__ void tma_load_2d_once(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;"
               ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void tma_load_3d(uint32_t to, const CUtensorMap* map, int x, int y, int z, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void tma_load_3d_once(uint32_t to, const CUtensorMap* map, int x, int y, int z, uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;"
               ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void tma_load_4d(uint32_t to, const CUtensorMap* map, int x, int y, int z, int w, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void tma_load_4d_once(uint32_t to, const CUtensorMap* map, int x, int y, int z, int w, uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
               ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "l"(policy)
               : "memory");
}

// 9.7.9.25.5.2 cp.async.bulk.tensor, shared to global; a bulk_commit closes the group
__device__ __forceinline__ void tma_store_2d(const CUtensorMap* map, uint32_t from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y), "r"(from) : "memory");
}
__device__ __forceinline__ void tma_store_3d(const CUtensorMap* map, uint32_t from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(from)
               : "memory");
}

// 9.7.9.25.4.1 cp.async.bulk: 16-byte aligned addresses and sizes
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// The same for data that is read once
__device__ __forceinline__ void bulk_load_once(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier), "l"(policy)
               : "memory");
}

// 9.7.9.25.6 cp.async.bulk.commit_group and .wait_group; the .read form waits only until shared memory may be overwritten
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
template <int PENDING>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}
