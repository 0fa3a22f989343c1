/* LayerNorm of up to 16 MT rows, each warp holding 64 of the 768 features of all rows in registers, as A fragments want them.

   Value (j, s): row 8 j + g, features 64 warp + 16 s + 4 t ... + 3. Two passes over the registers for a warp's own mean and sum of squared deviations, then
   the twelve pairs of a row are merged (Chan): nothing is lost to cancellation however far the mean is from zero. */
#pragma once

#include "small/layout.cuh"
#include "small/ptx.cuh"

namespace small {

struct Moments {
  float2 part[WARPS][MAX_ROWS];  // mean of 64 features, sum of squared deviations from it
  float2 row[MAX_ROWS];          // mean, 1 / standard deviation
};

__device__ __forceinline__ float sum_over_t(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/* gamma_beta: 768 scales, then 768 shifts. a[s][m]: the fragment of step s and row tile m. */
template <int MT>
__device__ __forceinline__ void layernorm(const float4 (&x)[2 * MT][4], const float* gamma_beta, Moments& moments,
                                          uint32_t (&a)[4][MT][4]) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < 2 * MT; ++j) {
    float sum = 0;
#pragma unroll
    for (int s = 0; s < 4; ++s) sum += (x[j][s].x + x[j][s].y) + (x[j][s].z + x[j][s].w);
    const float mean = sum_over_t(sum) * (1.0f / 64);
    float square = 0;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const float4 d = make_float4(x[j][s].x - mean, x[j][s].y - mean, x[j][s].z - mean, x[j][s].w - mean);
      square += (d.x * d.x + d.y * d.y) + (d.z * d.z + d.w * d.w);
    }
    square = sum_over_t(square);
    if (t == 0) moments.part[warp][8 * j + g] = make_float2(mean, square);
  }
  __syncthreads();
  if (threadIdx.x < 16 * MT) {
    float2 part[WARPS];
    float mean = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      part[w] = moments.part[w][threadIdx.x];
      mean += part[w].x;
    }
    mean *= 1.0f / WARPS;
    float square = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) square += part[w].y + 64.0f * (part[w].x - mean) * (part[w].x - mean);
    moments.row[threadIdx.x] = make_float2(mean, rsqrtf(square * (1.0f / D) + LN_EPS));
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 2 * MT; ++j) {
    const float2 row = moments.row[8 * j + g];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int k = 64 * warp + 16 * s + 4 * t;
      const float4 scale = *reinterpret_cast<const float4*>(gamma_beta + k), shift = *reinterpret_cast<const float4*>(gamma_beta + D + k);
      const float4 v = x[j][s];
      a[s][j / 2][j % 2] = pack((v.x - row.x) * row.y * scale.x + shift.x, (v.y - row.x) * row.y * scale.y + shift.y);
      a[s][j / 2][j % 2 + 2] = pack((v.z - row.x) * row.y * scale.z + shift.z, (v.w - row.x) * row.y * scale.w + shift.w);
    }
  }
}

}  // namespace small
