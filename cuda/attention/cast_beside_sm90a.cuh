/* The cast as a role for single warps of a block that does something else: a warp fetches and rounds chunks of 4096 weights or pieces of them, the next one on
   its way where it has two places for them. It waits for its predecessor, QKV, only before it writes where W_qkv may have been. Weights that are not
   16-byte aligned come from the boundary before them on.
   Limiter: the issue slots that it takes from attention, and power. 1408 rows of solve() take 3.5 us less without any cast here; with 30 of the 73
   instructions for four loads gone, as now, 2.0 less (H100). Two places, in 192 rows a block with a third warp, gain 0 to 1.1 us at 1450 to 4096 rows,
   below nothing (H200). */
#pragma once
#include "attention/attention_tile_sm90a.cuh"
#include "cast/cast_sm90a.cuh"

// Four neighbours
template <bool ALIGNED>
__device__ __forceinline__ float4 load_weights(uint32_t address) {
  if (ALIGNED) return load_shared_4(address);
  return make_float4(load_shared(address), load_shared(address + 4), load_shared(address + 8), load_shared(address + 12));
}

// A lane's share of a piece. What is not aligned goes by one load at a time, else the compiler makes one loop of both, with all loads of both in it.
template <int PIECE, bool ALIGNED>
__device__ __forceinline__ void cast_piece(CastWatch& watch, uint32_t from, __half* to) {
  constexpr int BATCH = ALIGNED ? 4 : 1;  // loads in flight
#pragma unroll 1
  for (const uint32_t end = from + 4 * PIECE; from < end; from += 512 * BATCH, to += 128 * BATCH) {
    float4 v[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) v[i] = load_weights<ALIGNED>(from + 512 * i);
#pragma unroll
    for (int i = 0; i < BATCH; i++) watch.cast(v[i], to + 128 * i);
  }
  watch.gather(PIECE / 32);
}

// `memory`: PLACES places for PIECE floats and 16 bytes each, 128 bytes aligned; `full`: a barrier for each
template <int PIECE, int PLACES>
__device__ __forceinline__ void cast_beside(const CastArgs& args, uint32_t memory, uint32_t full, int worker, int workers) {
  constexpr int PIECES = CAST_CHUNK / PIECE, PLACE_BYTES = 4 * PIECE + 128;
  const int last = args.last * PIECES;
  const auto ahead = [&] { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(args.weights) & 15); };
  const auto fetch = [&](int piece, uint32_t place) {
    if (threadIdx.x % 32 != 0 || piece >= last) return;
    const float* from = args.weights + cast_source(piece / PIECES) + piece % PIECES * PIECE;
    const uint32_t bytes = 4 * PIECE + (ahead() == 0 ? 0 : 16), at = full + 8 * place;
    mbarrier_expect(at, bytes);
    bulk_load_once(memory + place * PLACE_BYTES, reinterpret_cast<const uint8_t*>(from) - ahead(), bytes, at, evict_first_policy());
  };
  CastWatch watch;
  int piece = args.first * PIECES + worker;
#pragma unroll
  for (int i = 0; i < PLACES; i++) fetch(piece + i * workers, i);
  for (uint32_t turn = 0; piece < last; piece += workers, turn++) {
    const uint32_t place = turn % PLACES;
    const int chunk = piece / PIECES;
    watch.turn_to(chunk, args.alarms);
    mbarrier_wait_or_fault(full + 8 * place, turn / PLACES & 1);
    if (chunk >= CHUNKS_UNSHARED) pdl_wait();
    const uint32_t lane = threadIdx.x % 32, at = memory + place * PLACE_BYTES + ahead() + 16 * lane;
    __half* const to = cast_target(args, chunk) + piece % PIECES * PIECE + 4 * lane;
    if (ahead() == 0)
      cast_piece<PIECE, true>(watch, at, to);
    else
      cast_piece<PIECE, false>(watch, at, to);
    __syncwarp();
    fetch(piece + PLACES * workers, place);
  }
  watch.report(args.alarms);
}
