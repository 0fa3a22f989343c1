/* Where x1 and h of a warp's 16 x BN outputs lie before the copy engine stores them: boxes of 16 rows x 32 columns, fp32 and fp16, swizzled. The residual comes
   into those of x1 during the main loop. */
#pragma once
#include "common/copy_sm90a.cuh"
#include "gemm/gemm_sm90a.cuh"

template <class S>
struct ResidualBoxes {
  // Half a tile of 128 x 96 is residual: asked for first, it holds up the first k-blocks (2048 rows: -0.7). The small tile wants it early (256 rows: +0.5 if
  // late), and so does the large one, which has the longer loop (4096 rows: +1.4).
  static constexpr Prepares PREPARES = S::BM == 128 && S::BN == 96 ? UNDER_FIRST_PRODUCTS : BEFORE_PRODUCTS;
  static constexpr int COUNT = S::BN / 32, WARP_BYTES = COUNT * 2048, X1_BYTES = 4 * S::WARPGROUPS * WARP_BYTES;
  static constexpr bool OWN_H = S::BM * S::BN < 128 * 192;  // where there is no room for boxes of h, it waits for those of x1
  static constexpr int BYTES = X1_BYTES + (OWN_H ? X1_BYTES / 2 : 0);

  uint32_t at, h;  // this warp's

  __device__ void lie(uint32_t memory) {
    const int warp = threadIdx.x / 32;
    at = memory + warp * WARP_BYTES;
    h = OWN_H ? memory + X1_BYTES + warp * (WARP_BYTES / 2) : at;
  }
  __device__ void fetch(const float* residual, int row, int n, int rows) const {
    const int lane = threadIdx.x % 32;
    if (elect_one()) bulk_wait_read<0>();  // the boxes of the tile before
    __syncwarp();
    const float* from = residual + static_cast<size_t>(row + lane / 8) * S::N + n + lane % 8 * 4;
#pragma unroll
    for (int i = 0; i < 4 * COUNT; i++)  // eight lanes a row of a box, four rows at a time
      if (row + lane / 8 + i / COUNT * 4 < rows)
        copy_async_16(at + i % COUNT * 2048 + swizzle<128>(lane / 8 + i / COUNT * 4, lane % 8), from + i / COUNT * 4 * S::N + i % COUNT * 32);
  }
  // Where a thread's two columns of group g, in row lane / 4 of its warp, lie; eight rows on: + 1024
  __device__ uint32_t place(int g) const {
    const int lane = threadIdx.x % 32;
    return at + g / 4 * 2048 + swizzle<128>(lane / 4, g % 4 * 2 + lane % 4 / 2) + lane % 2 * 8;
  }
  // Hands the warp's box `box`, which lies at `from`, to the copy engine, for rows from `row` on of the tile that begins in column n
  static __device__ void send(const CUtensorMap* to, uint32_t from, int box, int row, int n) {
    fence_async_shared();
    __syncwarp();
    if (elect_one()) {
      tma_store_2d(to, from, n + 32 * box, row);
      bulk_commit();
    }
  }
  // Before the first of h, where it has no boxes of its own
  __device__ void make_room() const {
    if (elect_one()) bulk_wait_read<0>();  // x1 has left its boxes
    __syncwarp();
  }
};
