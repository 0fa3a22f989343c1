/* What a consumer warpgroup does with its O: divide by the sums, round to fp16, and store through shared memory (Q's
   place, free by now); with key groups, first add up the groups' parts, in the order of the groups, so that the bits do
   not depend on which was ready first. */
#pragma once
#include "attention/attention_consumer_sm90a.cuh"
#include "common/sync_sm90a.cuh"

// Registers 8 i .. 8 i + 7 of O, which are columns 16 i .. 16 i + 15, times the rows' scales.
template <class T>
__device__ __forceinline__ void stage_columns(const AttentionConsumer<T>& c, int i, const float* v, const float (&scale)[2]) {
  const int lane = c.lane(), row = 16 * c.warp + (lane & 15);
  stmatrix_x4(c.rows_smem() + swizzle<128>(row, 2 * i + (lane >> 4)),
              pack_half2(v[0] * scale[0], v[1] * scale[0]), pack_half2(v[2] * scale[1], v[3] * scale[1]),
              pack_half2(v[4] * scale[0], v[5] * scale[0]), pack_half2(v[6] * scale[1], v[7] * scale[1]));
}

template <class T>
__device__ __forceinline__ void store_rows(const AttentionConsumer<T>& c, const CUtensorMap* att) {
  tma_store_3d(att, c.rows_smem(), c.work.head * HEAD_DIM, c.row, c.work.sequence);
  bulk_commit();
  bulk_wait_read<0>();
}

template <class T>
__device__ __forceinline__ void store_output(const AttentionConsumer<T>& c, const CUtensorMap* att) {
  const float scale[2] = {reciprocal(c.sums[0]), reciprocal(c.sums[1])};
#pragma unroll
  for (int i = 0; i < 4; i++) stage_columns(c, i, c.o + 8 * i, scale);
  fence_async_shared();
  named_barrier_sync(1 + T::CONSUMERS + c.group, 128);
  if (c.warp == 0 && elect_one()) store_rows(c, att);
}

// Each key group leaves its part, then finishes 64 / KEY_GROUPS columns of the sum.
template <class T>
__device__ __forceinline__ void combine_and_store_output(const AttentionConsumer<T>& c, const CUtensorMap* att) {
  constexpr int SHARE = 32 / T::KEY_GROUPS;
  const uint32_t mine = (32 * c.warp + c.lane()) * 16;
#pragma unroll
  for (int i = 0; i < 8; i++)
    store_shared_4(c.smem.partial(c.group) + i * 2048 + mine, make_float4(c.o[4 * i], c.o[4 * i + 1], c.o[4 * i + 2], c.o[4 * i + 3]));
  store_shared_4(c.smem.partial(c.group) + 16384 + mine,
                 make_float4(c.softmax.reference_of(0, c.sums[0]), c.softmax.reference_of(1, c.sums[1]), c.sums[0], c.sums[1]));
  named_barrier_sync(1 + T::CONSUMERS, 128 * T::CONSUMERS);

  float4 part[T::KEY_GROUPS];
  float top[2] = {NO_SCORE, NO_SCORE}, total[2] = {0, 0}, v[SHARE];
#pragma unroll
  for (int g = 0; g < T::KEY_GROUPS; g++) {
    part[g] = load_shared_4(c.smem.partial(g) + 16384 + mine);
    top[0] = fmaxf(top[0], part[g].x);
    top[1] = fmaxf(top[1], part[g].y);
  }
#pragma unroll
  for (int i = 0; i < SHARE; i++) v[i] = 0;
#pragma unroll
  for (int g = 0; g < T::KEY_GROUPS; g++) {
    const float weight0 = exp2_approx((part[g].x - top[0]) * SCORE_SCALE), weight1 = exp2_approx((part[g].y - top[1]) * SCORE_SCALE);
    total[0] += weight0 * part[g].z;
    total[1] += weight1 * part[g].w;
#pragma unroll
    for (int i = 0; i < SHARE; i += 4) {
      const float4 from = load_shared_4(c.smem.partial(g) + (c.group * SHARE + i) / 4 * 2048 + mine);
      v[i] += weight0 * from.x;
      v[i + 1] += weight0 * from.y;
      v[i + 2] += weight1 * from.z;
      v[i + 3] += weight1 * from.w;
    }
  }
  const float scale[2] = {reciprocal(total[0]), reciprocal(total[1])};
#pragma unroll
  for (int i = 0; i < SHARE; i += 8) stage_columns(c, (c.group * SHARE + i) / 8, v + i, scale);
  fence_async_shared();
  named_barrier_sync(1 + T::CONSUMERS, 128 * T::CONSUMERS);
  if (c.group == 0 && c.warp == 0 && elect_one()) store_rows(c, att);
}
