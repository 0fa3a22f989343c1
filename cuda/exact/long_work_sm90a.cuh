/* What the host has found out for the kernels of the exact chain for many rows (src/cuda/exact/work.rs), as their parameters. */
#pragma once

#include "exact/exact_gemm_sm90a.cuh"
#include "exact/exact_split_sm90a.cuh"

namespace exact90 {

// QKV and FC: so many of the widest tiles, then others, counted in those from `first` on
struct LongTiles {
  int wide, first;
};

// Attention: the first units are dealt out in runs of tiles of keys, of which a block has one.
struct LongRuns {
  int dealt, each, run, unused;  // units, tiles of keys of each, tiles of a run
};

// Slabs begin .. end, by the blocks from `block` on when they have nothing else to do
struct LongSlabs {
  int block, begin, end, unused;

  // By the threads that compute
  __device__ __forceinline__ void split(const ExactArgs& args, uint32_t shared) const {
    if (static_cast<int>(blockIdx.x) < block || begin >= end) return;
    float* reduce = reinterpret_cast<float*>(dynamic_shared + (shared + S_REDUCE - shared_address(dynamic_shared)));
    const int slab = begin + blockIdx.x - block;
    named_barrier_sync(CONSUMER_BARRIER, CONSUMERS);  // both warpgroups are done with the ring
    if (slab < end) fetch_slab(args, slab, shared + S_RING);
    split_slabs<false>(args, shared, reduce, slab, gridDim.x - block, end);
  }
};

}  // namespace exact90
