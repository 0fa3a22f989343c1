/* The cast as a role for warps beside a product, which leaves them no shared memory: each rounds 1024 weights at a time, by loads of its own.
   Limiter: 12 KB on their way to a multiprocessor, and what the product draws at the same time. */
#pragma once
#include "cast/cast_sm90a.cuh"

// Of a block with products of this shape, which leave registers for so many. With two, whole calls of 288 to 720 rows take -0.3 to +1.1 us more (H200).
template <class S>
constexpr int CASTING_WARPS = S::WARPGROUPS <= 2 && S::SUMS <= 96 ? 3 : 0;

constexpr int LOADED_PIECE = 1024;

// A lane's share of a piece. What is not aligned goes by one load at a time, as beside attention.
template <bool ALIGNED>
__device__ __forceinline__ void cast_loaded(CastWatch& watch, const float* from, __half* to) {
  constexpr int BATCH = ALIGNED ? LOADED_PIECE / 128 : 1;  // loads in flight
  const uint64_t policy = evict_first_policy();
#pragma unroll 1
  for (const float* const end = from + LOADED_PIECE; from < end; from += 128 * BATCH, to += 128 * BATCH) {
    float4 v[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) v[i] = ALIGNED ? load_once_4(from + 128 * i, policy) : load_unaligned_4(from + 128 * i);
#pragma unroll
    for (int i = 0; i < BATCH; i++) watch.cast(v[i], to + 128 * i);
  }
  watch.gather(LOADED_PIECE / 32);
}

// Warp `warp` of WARPS in each block of the grid
template <int WARPS>
__device__ __forceinline__ void cast_by_loads(const CastArgs& args, int warp) {
  constexpr int PIECES = CAST_CHUNK / LOADED_PIECE;
  const int lane = threadIdx.x % 32;
  const bool aligned = aligned_16(args.weights);
  CastWatch watch;
  for (int piece = args.first * PIECES + warp * gridDim.x + blockIdx.x; piece < args.last * PIECES; piece += WARPS * gridDim.x) {
    const int chunk = piece / PIECES, at = piece % PIECES * LOADED_PIECE + 4 * lane;
    const float* const from = args.weights + cast_source(chunk) + at;
    __half* const to = cast_target(args, chunk) + at;
    watch.turn_to(chunk, args.alarms);
    if (aligned)
      cast_loaded<true>(watch, from, to);
    else
      cast_loaded<false>(watch, from, to);
  }
  watch.report(args.alarms);
}
