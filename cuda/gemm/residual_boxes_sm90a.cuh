/* Where x1 of a warp's 16 x BN outputs lies before the copy engine stores it: boxes of 16 rows x 32 columns, fp32, swizzled. The residual comes into them
   during the main loop. */
#pragma once
#include "common/copy_sm90a.cuh"
#include "gemm/gemm_sm90a.cuh"

template <class S>
struct ResidualBoxes {
  // Half a tile of 128 x 96 is residual: asked for first, it holds up the first k-blocks (2048 rows: -0.7). The small tile wants it early (256 rows: +0.5 if
  // late), and so does the large one, which has the longer loop (4096 rows: +1.4).
  static constexpr Prepared PREPARED = S::BM == 128 && S::BN == 96 ? UNDER_FIRST_PRODUCTS : BEFORE_PRODUCTS;
  static constexpr int COUNT = S::BN / 32, WARP_BYTES = COUNT * 2048, BYTES = 4 * S::WARPGROUPS * WARP_BYTES;

  uint32_t at;  // this warp's

  __device__ void fetch(const float* residual, int row, int n, int rows) const {
    const int lane = threadIdx.x % 32;
    if (elect_one()) bulk_wait_read<0>();  // the boxes of the tile before
    __syncwarp();
    const float* from = residual + static_cast<size_t>(row + lane / 8) * S::N + n + lane % 8 * 4;
#pragma unroll
    for (int i = 0; i < 4 * COUNT; i++)  // eight lanes a row of a box, four rows at a time
      if (row + lane / 8 + i / COUNT * 4 < rows)
        copy_async_16(at + i % COUNT * 2048 + swizzle_128(lane / 8 + i / COUNT * 4, lane % 8), from + i / COUNT * 4 * S::N + i % COUNT * 32);
  }
  // Where a thread's two columns of group g, in row lane / 4 of its warp, lie; eight rows on: + 1024
  __device__ uint32_t place(int g) const {
    const int lane = threadIdx.x % 32;
    return at + g / 4 * 2048 + swizzle_128(lane / 4, g % 4 * 2 + lane % 4 / 2) + lane % 2 * 8;
  }
};
