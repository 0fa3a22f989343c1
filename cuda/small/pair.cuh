/* The two blocks of a cluster have the halves of W_proj's K for the same columns. Their sums meet from SM to SM, not
   through L2. */
#pragma once

#include "common/cluster_sm90a.cuh"
#include "small/layout.cuh"
#include "small/ptx.cuh"
#include "small/vectors.cuh"

namespace small {

/* The sums of the other block for the rows that this one finishes: of eight rows four, which a warp has. */
template <int MT>
struct PeerSums {
  float of[8 * MT][PAIR_COLS];
  uint64_t arrived[2 * MT];  // of four rows each

  __device__ __forceinline__ void init() {
    for (uint64_t& bar : arrived) mbarrier_init(shared_address(&bar), 1);
  }
  __device__ __forceinline__ void invalidate() {
    for (uint64_t& bar : arrived) mbarrier_invalidate(shared_address(&bar));
  }

  /* Adds the other block's part to `sum`, that of this one, which has the first or second `half`, of column c and the
     next. Returns whether this thread holds a finished one. The blocks have met before. */
  __device__ __forceinline__ bool meet(float2& sum, uint32_t parity, int half, int row, int c, int rows) {
    float* const place = &of[row / 8 * 4 + row % 4][c];
    const uint32_t bar = shared_address(&arrived[row / 8]);
    if (row / 4 % 2 != half) {
      const uint32_t peer = cluster_rank() ^ 1;
      cluster_store_2(cluster_address(shared_address(place), peer), sum.x, sum.y, cluster_address(bar, peer));
      return false;
    }
    if (row % 4 + c == 0) mbarrier_expect(bar, min(rows - row, 4) * sizeof of[0]);
    cluster_wait_or_fault(bar, parity);
    sum = add(sum, pair(place));
    return true;
  }
};

}  // namespace small
