/* The cast as a role for single warps of a block that does something else: a chunk of 4096 weights a warp and turn, from a place of its own in shared
   memory. Like cast_role it waits for its predecessor only before it writes where W_qkv may have been. Weights that are not 16-byte aligned
   come from the boundary before them on.
   Limiter: the latency of memory, then of shared memory beside wgmma; at most three chunks a warp are hidden under attention at 1024 rows. */
#pragma once
#include "attention/attention_tile_sm90a.cuh"
#include "cast/cast_sm90a.cuh"

// Four neighbours from `address`, which is 16-byte aligned if `aligned`.
__device__ __forceinline__ float4 load_shared_4(uint32_t address, bool aligned) {
  if (aligned) return load_shared_4(address);
  return make_float4(load_shared(address), load_shared(address + 4), load_shared(address + 8), load_shared(address + 12));
}

// `memory`: CAST_CHUNK floats and 16 bytes
__device__ __forceinline__ void cast_beside(const CastArgs& args, uint32_t memory, uint32_t full, int worker, int workers) {
  constexpr int BATCH = 4;  // loads in flight
  const int lane = threadIdx.x & 31;
  CastWatch watch;
  uint32_t parity = 0;
  for (int chunk = args.first + worker; chunk < args.last; chunk += workers, parity ^= 1) {
    const float* from = args.weights + cast_source(chunk);
    const uint32_t ahead = reinterpret_cast<uintptr_t>(from) & 15, bytes = 4 * CAST_CHUNK + (ahead == 0 ? 0 : 16);
    if (lane == 0) {
      mbarrier_expect(full, bytes);
      bulk_load_once(memory, reinterpret_cast<const uint8_t*>(from) - ahead, bytes, full, evict_first_policy());
    }
    watch.turn_to(chunk, args.alarms);
    mbarrier_wait_or_fault(full, parity);
    if (chunk >= CHUNKS_UNSHARED) pdl_wait();
    const uint32_t at = memory + ahead + 16 * lane;
    __half* to = cast_target(args, chunk) + 4 * lane;
#pragma unroll 1
    for (int i = 0; i < CAST_CHUNK / 128; i += BATCH) {
      float4 v[BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; j++) v[j] = load_shared_4(at + 512 * (i + j), ahead == 0);
#pragma unroll
      for (int j = 0; j < BATCH; j++) {
        watch.add(v[j]);
        store_half4(to + 128 * (i + j), v[j]);
      }
    }
    __syncwarp();
  }
  watch.report(args.alarms);
}
