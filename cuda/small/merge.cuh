/* Of sequences of one token attention is V, so that x1 = x + LN1(x) W_v W_o + (b_v W_o + b_o), W_o being the attention
   projection's weights: prepared, the product of the two matrices is one matrix, and an exchange and a product are
   saved. It is multiplied in fp32 and kept in fp16 with a power of two for each column, so that it holds whatever its
   size; what becomes of it is added to x1 in fp32. */
#pragma once

#include <cstdint>

#include "common/cluster_sm90a.cuh"
#include "common/copy_sm90a.cuh"
#include "dims.h"
#include "small/layout.cuh"
#include "small/ptx.cuh"
#include "small/vectors.cuh"

namespace small {

/* The merged matrix from the caller's weights, aligned to 4 bytes: a cluster has 32 columns, of which each of its
   blocks has 192 rows, four by four numbers to a thread. Limiter: shared memory, which serves a quarter of a warp at a
   time (42 us; multiply-adds 21). */
class Merge {
 public:
  static constexpr int THREADS = 384, CLUSTER = 4, COLUMNS = 32, BLOCKS = D / COLUMNS * CLUSTER;

 private:
  static constexpr int ROWS = D / CLUSTER, DEPTH = 32, STEPS = D / DEPTH, PITCH = DEPTH + 4, LANES = COLUMNS / 4;
  static_assert(THREADS == ROWS / 4 * LANES && COLUMNS == 32 && DEPTH == 32);

  // 32 of K: of W_v this block's rows, W_o, b_v
  struct Stage {
    alignas(16) float left[ROWS][PITCH], right[DEPTH][COLUMNS];
    float bias[DEPTH];

    __device__ __forceinline__ void fetch(const float* weights, int row, int column, int k) {
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
      const float* const values = weights + W_QKV + 2 * D + k + lane;
#pragma unroll 4
      for (int r = warp; r < ROWS; r += WARPS) copy_async_4(shared_address(&left[r][lane]), values + (row + r) * QKV);
      for (int r = warp; r < DEPTH; r += WARPS)
        copy_async_4(shared_address(&right[r][lane]), weights + W_ATTN + (k + r) * D + column + lane);
      if (warp == 0) copy_async_4(shared_address(bias + lane), weights + B_QKV + 2 * D + k + lane);
    }
  };

  Stage stages[2];
  float largest[WARPS][COLUMNS], biases[WARPS][COLUMNS];
  float of_blocks[CLUSTER][COLUMNS];  // the largest of each block's rows
  uint64_t arrived;

 public:
  __device__ __forceinline__ void run(const float* weights, __half* matrix, float* vectors) {
    const int rank = cluster_rank(), first = blockIdx.x / CLUSTER * COLUMNS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = threadIdx.x / LANES * 4, c = lane % LANES * 4;
    const uint32_t bar = shared_address(&arrived);
    if (threadIdx.x == 0) {
      mbarrier_init(bar, 1);
      fence_mbarrier_init();
    }
    cluster_arrive();

    float sums[4][4] = {}, bias = 0;
    stages[0].fetch(weights, rank * ROWS, first, 0);
    for (int step = 0; step < STEPS; ++step) {
      copy_async_wait();
      __syncthreads();
      if (step + 1 < STEPS) stages[(step + 1) % 2].fetch(weights, rank * ROWS, first, (step + 1) * DEPTH);
      const Stage& stage = stages[step % 2];
#pragma unroll 2
      for (int k = 0; k < DEPTH; k += 4) {
        float left[4][4];
#pragma unroll
        for (int r = 0; r < 4; ++r) spread(left[r], quad(&stage.left[row + r][k]));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float right[4];
          spread(right, quad(&stage.right[k + i][c]));
#pragma unroll
          for (int r = 0; r < 4; ++r)
#pragma unroll
            for (int j = 0; j < 4; ++j) sums[r][j] = fmaf(left[r][i], right[j], sums[r][j]);
        }
      }
      if (warp == step % WARPS)
        for (int k = 0; k < DEPTH; ++k) bias = fmaf(stage.bias[k], stage.right[k][lane], bias);
    }

    biases[warp][lane] = bias;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float most = 0;
#pragma unroll
      for (int r = 0; r < 4; ++r) most = fmaxf(most, fabsf(sums[r][j]));
#pragma unroll
      for (int offset = LANES; offset < 32; offset *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
      if (lane < LANES) largest[warp][c + j] = most;
    }
    __syncthreads();
    cluster_wait();
    if (threadIdx.x == 0) mbarrier_expect(bar, sizeof of_blocks);
    if (warp == 0) {
      float most = 0;
      for (int w = 0; w < WARPS; ++w) most = fmaxf(most, largest[w][lane]);
      for (int peer = 0; peer < CLUSTER; ++peer)
        cluster_store(cluster_address(shared_address(&of_blocks[rank][lane]), peer), most, cluster_address(bar, peer));
    }
    cluster_wait_or_fault(bar, 0);

#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = first + c + j;
      const float inverse = __uint_as_float((254 - exponent(c + j)) << 23);
      // As pack_matrix() has it for groups of 4
      __half2* const to = reinterpret_cast<__half2*>(
          matrix + ((column / 8 * (D / 16) + (rank * ROWS + row) / 16) * 32 + 4 * (column % 8) + row % 16 / 4) * 4);
      to[0] = __floats2half2_rn(sums[0][j] * inverse, sums[1][j] * inverse);
      to[1] = __floats2half2_rn(sums[2][j] * inverse, sums[3][j] * inverse);
    }
    if (rank == 0 && warp == 0) {
      const int column = first + lane;
      float sum = weights[B_ATTN + column];
      for (int w = 0; w < WARPS; ++w) sum += biases[w][lane];
      float* const of_tile = vectors + column / 8 * 16 + column % 8;
      of_tile[0] = sum;
      of_tile[8] = __uint_as_float(exponent(lane) << 23);
    }
  }

 private:
  static __device__ __forceinline__ void spread(float (&to)[4], float4 v) {
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }

  // Of the scale of column c, of which the largest number is between 1 and 2 times as large; as fp32 has it to spare,
  // neither it nor its inverse is subnormal
  __device__ __forceinline__ int exponent(int c) const {
    float most = 0;
    for (const float(&of)[COLUMNS] : of_blocks) most = fmaxf(most, of[c]);
    return min(max(static_cast<int>(__float_as_uint(most) >> 23), 2), 252);
  }
};

}  // namespace small
