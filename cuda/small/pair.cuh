/* What the two blocks of a cluster give each other, from SM to SM and not through L2. They have the halves of W_proj's
   K for the same columns, whose sums meet; and of 9 to 16 rows each normalises eight, for both. */
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

/* A LayerNorm's output of the other block's rows, as fragments: a lane gets what the same lane there has. */
template <bool USED>
struct PeerRows {
  float4 of[2][USED ? THREADS : 1];
  uint64_t arrived[WARPS];

  __device__ __forceinline__ void init() {
    for (uint64_t& bar : arrived) mbarrier_init(shared_address(&bar), 1);
  }
  __device__ __forceinline__ void invalidate() {
    for (uint64_t& bar : arrived) mbarrier_invalidate(shared_address(&bar));
  }

  /* a[s][0][0] and [2], this block's rows, are sent; a[s][0][1] and [3] become the other one's. Both have some: up to
     eight rows take another form. The second time, with the other parity, nobody sends before all blocks have used what
     came the first time: their sums of it are what the second LayerNorm is made of. */
  __device__ __forceinline__ void swap(uint32_t (&a)[4][1][4], uint32_t parity) {
    const uint32_t bar = shared_address(&arrived[threadIdx.x / 32]), peer = cluster_rank() ^ 1;
    if (threadIdx.x % 32 == 0) mbarrier_expect(bar, sizeof of / WARPS);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      cluster_store_4(cluster_address(shared_address(&of[i][threadIdx.x]), peer),
                      make_float4(__uint_as_float(a[2 * i][0][0]), __uint_as_float(a[2 * i][0][2]),
                                  __uint_as_float(a[2 * i + 1][0][0]), __uint_as_float(a[2 * i + 1][0][2])),
                      cluster_address(bar, peer));
    cluster_wait_or_fault(bar, parity);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 v = of[i][threadIdx.x];
      a[2 * i][0][1] = __float_as_uint(v.x), a[2 * i][0][3] = __float_as_uint(v.y);
      a[2 * i + 1][0][1] = __float_as_uint(v.z), a[2 * i + 1][0][3] = __float_as_uint(v.w);
    }
  }
};

}  // namespace small
