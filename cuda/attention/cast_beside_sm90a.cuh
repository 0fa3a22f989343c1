/* The cast as a role for single warps of a block that does something else: a chunk of 4096 weights a warp and turn, from a place of its own in shared
   memory. Like cast_role it waits for its predecessor only before it writes where W_qkv may have been. Weights that are not 16-byte aligned
   come from the boundary before them on.
   Limiter: the issue slots that it takes from attention, and power. 1408 rows of solve() take 3.5 us less without any cast here; with 30 of the 73
   instructions for four loads gone, as now, 2.0 less (H100). That it waits for each chunk, not two at a time, costs nothing. */
#pragma once
#include "attention/attention_tile_sm90a.cuh"
#include "cast/cast_sm90a.cuh"

// Four neighbours
template <bool ALIGNED>
__device__ __forceinline__ float4 load_weights(uint32_t address) {
  if (ALIGNED) return load_shared_4(address);
  return make_float4(load_shared(address), load_shared(address + 4), load_shared(address + 8), load_shared(address + 12));
}

// A lane's share of a chunk. What is not aligned goes by one load at a time, else the compiler makes one loop of both, with all loads of both in it.
template <bool ALIGNED>
__device__ __forceinline__ void cast_chunk(CastWatch& watch, uint32_t from, __half* to) {
  constexpr int BATCH = ALIGNED ? 4 : 1;  // loads in flight
#pragma unroll 1
  for (const uint32_t end = from + 4 * CAST_CHUNK; from < end; from += 512 * BATCH, to += 128 * BATCH) {
    float4 v[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) v[i] = load_weights<ALIGNED>(from + 512 * i);
#pragma unroll
    for (int i = 0; i < BATCH; i++) watch.cast(v[i], to + 128 * i);
  }
  watch.gather(CAST_CHUNK / 32);
}

// `memory`: CAST_CHUNK floats and 16 bytes
__device__ __forceinline__ void cast_beside(const CastArgs& args, uint32_t memory, uint32_t full, int worker, int workers) {
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
    __half* const to = cast_target(args, chunk) + 4 * lane;
    if (ahead == 0)
      cast_chunk<true>(watch, at, to);
    else
      cast_chunk<false>(watch, at, to);
    __syncwarp();
  }
  watch.report(args.alarms);
}
