/* The end of the projections of the exact block of many rows where few blocks share a tile: their sums, bias and residual become x1, or output, without a way
   through memory. Limiter: reads and writes, at 16 bytes a clock. */
#pragma once

#include "common/cluster_sm90a.cuh"
#include "exact/exact_gemm_sm90a.cuh"

namespace exact90 {

// Between the stages of the block: to = residual + a product + bias, (rows, D) each but for the bias
struct LongResidual {
  const float *residual, *bias;
  float* to;
  int rows;

  static __device__ __forceinline__ LongResidual of_attention(const ExactArgs& args) {
    const Memory memory(args);
    return {args.x, memory.vectors() + V_B_ATTN, memory.x1(), args.rows};
  }
  static __device__ __forceinline__ LongResidual of_output(const ExactArgs& args) {
    const Memory memory(args);
    return {memory.x1(), memory.vectors() + V_B_PROJ, args.output, args.rows};
  }
};

// Of a warp's 16 rows HALVES times 32 columns from `column` on, whole lines by way of its box; the product is sum * scale.
template <int HALVES>
__device__ __forceinline__ void finish_long_rows(uint32_t shared, const LongResidual& of, int first_row, int column, const float (&sum)[16 * HALVES],
                                                 float scale) {
  const int thread = thread_index(), lane = thread % 32, warp = thread / 32, top = first_row + warp * 16 + lane / 8;
  const uint32_t box = shared + S_BOX + warp * BOX_BYTES;
  const size_t at = static_cast<size_t>(top) * D + column + lane % 8 * 4;
  const float *residual = of.residual + at, *bias = of.bias + column + lane % 8 * 4;
  float4 old[2][4];
  const auto fetch = [&](int half) {
#pragma unroll
    for (int i = 0; i < 4; i++) old[half % 2][i] = top + 4 * i < of.rows ? load_4(residual + 4 * i * D + 32 * half) : make_float4(0.f, 0.f, 0.f, 0.f);
  };
  fetch(0);
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    const float4 b = load_4(bias + 32 * half);
    if (half + 1 < HALVES) fetch(half + 1);
    __syncwarp();
    fill_box(box, lane, sum + 16 * half, scale);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float4 v = load_shared_4(box + swizzle_128(4 * i + lane / 8, lane % 8));
      add(v, b);
      add(v, old[half % 2][i]);
      if (top + 4 * i < of.rows) __stcg(reinterpret_cast<float4*>(of.to + at + 4 * i * D + 32 * half), v);
    }
  }
}

// How two blocks of a cluster add up what they have of a tile: each sends the half of the columns that the other one finishes.
template <class F>
struct LongExchange {
  static constexpr int VECTORS = F::BN / 2 / 8, BYTES = VECTORS * 512;  // of a warp: 16 bytes a lane each
  static constexpr int RECEIVED = BAR_END;
  static_assert(RECEIVED + 8 <= S_BARRIERS + 512 && 2 * WARPS * BYTES <= RING_BYTES, "room");
  uint32_t shared;

  __device__ __forceinline__ explicit LongExchange(uint32_t shared) : shared(shared) {}
  // The threads that do not compute: all of a cluster meet twice.
  static __device__ __forceinline__ void stand_by() {
    cluster_arrive();
    cluster_wait();
    cluster_arrive();
    cluster_wait();
  }
  // By one thread, before all else
  __device__ __forceinline__ void expect() const { mbarrier_expect(shared + RECEIVED, WARPS * BYTES); }
  // By the threads that compute. The caller waits for the cluster once more when it is done with its half.
  __device__ __forceinline__ void add(float (&own)[F::BN / 4], const float (&sum)[F::BN / 2], int rank) const {
    const int thread = thread_index(), warp = uniform_group() * 4 + thread % 128 / 32, lane = thread % 32;
    const uint32_t here = shared + S_RING + warp * BYTES, there = here + WARPS * BYTES;
    cluster_arrive();
    cluster_wait();  // all warps of both have left the rings, and the barriers are there
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        const float* const v = sum + 4 * (VECTORS * half + i);
        if (half != rank) store_shared_4(here + 512 * i + 16 * lane, make_float4(v[0], v[1], v[2], v[3]));
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (half == rank) own[4 * i + j] = v[j];
      }
    fence_async_shared();
    __syncwarp();
    if (elect_one()) cluster_copy(cluster_address(there, rank ^ 1), here, BYTES, cluster_address(shared + RECEIVED, rank ^ 1));
    __syncwarp();
    mbarrier_wait_or_fault(shared + RECEIVED, 0);
    cluster_arrive();
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      const float4 v = load_shared_4(there + 512 * i + 16 * lane);
      own[4 * i] += v.x, own[4 * i + 1] += v.y, own[4 * i + 2] += v.z, own[4 * i + 3] += v.w;
    }
  }
};

}  // namespace exact90
