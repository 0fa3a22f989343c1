/* LayerNorm, in two forms. Up to 16 rows every block does all of it for itself, each warp holding 64 of the 768
   features of all rows in registers, as A fragments want them. Above, that would be too much to read for each: a warp
   somewhere does a row and sends it round, which takes one exchange more.

   Value (j, s): row 8 j + g, features 64 warp + 16 s + 4 t ... + 3. Two passes over the registers for a warp's own mean
   and sum of squared deviations, then the twelve pairs of a row are merged (Chan): nothing is lost to cancellation
   however far the mean is from zero. */
#pragma once

#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "common/sync_sm90a.cuh"
#include "small/exchange.cuh"
#include "small/layout.cuh"

namespace small {

struct Moments {
  float2 part[WARPS][16 + 4];  // mean of 64 features, sum of squared deviations from it; 4 more against bank conflicts
};

/* Mean and sum of squared deviations of as many numbers here as there (Chan et al., 1983), `half` being half of how
 * many. */
__device__ __forceinline__ float2 merge(float2 a, float half, int lanes) {
  const float2 b = make_float2(__shfl_xor_sync(0xffffffffu, a.x, lanes), __shfl_xor_sync(0xffffffffu, a.y, lanes));
  const float d = a.x - b.x;
  return make_float2(0.5f * (a.x + b.x), fmaf(d * half, d, a.y + b.y));
}

/* Of 8 HALVES rows. gamma[s], beta[s]: of features 64 warp + 16 s + 4 t ... + 3. put(s, j, what x[j][s] becomes) */
template <int HALVES, int J, class Put>
__device__ __forceinline__ void layernorm(const float4 (&x)[J][4], const float4 (&gamma)[4], const float4 (&beta)[4],
                                          Moments& moments, Put put) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float4 d[HALVES][4];  // from the mean of the lane's own 16
  float own[HALVES];
#pragma unroll
  for (int j = 0; j < HALVES; ++j) {
    float sums[4], squares[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) sums[s] = (x[j][s].x + x[j][s].y) + (x[j][s].z + x[j][s].w);
    own[j] = ((sums[0] + sums[1]) + (sums[2] + sums[3])) * (1.0f / 16);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      d[j][s] = make_float4(x[j][s].x - own[j], x[j][s].y - own[j], x[j][s].z - own[j], x[j][s].w - own[j]);
      squares[s] =
          fmaf(d[j][s].x, d[j][s].x, fmaf(d[j][s].y, d[j][s].y, fmaf(d[j][s].z, d[j][s].z, d[j][s].w * d[j][s].w)));
    }
    const float2 part =
        merge(merge(make_float2(own[j], (squares[0] + squares[1]) + (squares[2] + squares[3])), 8, 1), 16, 2);
    if (t == 0) moments.part[warp][8 * j + g] = part;
  }
  named_barrier_sync(COMPUTING, THREADS);
#pragma unroll
  for (int j = 0; j < HALVES; ++j) {
    float2 part[3];  // lane t takes every fourth warp's
#pragma unroll
    for (int w = 0; w < 3; ++w) part[w] = moments.part[4 * w + t][8 * j + g];
    const float mean = ((part[0].x + part[1].x) + part[2].x) * (1.0f / 3);
    float squares = (part[0].y + part[1].y) + part[2].y;
#pragma unroll
    for (int w = 0; w < 3; ++w) squares = fmaf(64.0f * (part[w].x - mean), part[w].x - mean, squares);
    const float2 row = merge(merge(make_float2(mean, squares), 96, 1), 192, 2);
    float scale;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(scale) : "f"(fmaf(row.y, 1.0f / D, LN_EPS)));
    const float shift = (own[j] - row.x) * scale;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const float4 v = d[j][s];
      put(s, j,
          make_float4(fmaf(fmaf(v.x, scale, shift), gamma[s].x, beta[s].x),
                      fmaf(fmaf(v.y, scale, shift), gamma[s].y, beta[s].y),
                      fmaf(fmaf(v.z, scale, shift), gamma[s].z, beta[s].z),
                      fmaf(fmaf(v.w, scale, shift), gamma[s].w, beta[s].w)));
    }
  }
}

/* The same as fragments: a[s][0] of step s. */
template <int HALVES>
__device__ __forceinline__ void layernorm(const float4 (&x)[2][4], const float4 (&gamma)[4], const float4 (&beta)[4],
                                          Moments& moments, uint32_t (&a)[4][1][4]) {
#pragma unroll
  for (int s = 0; s < 4; ++s)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[s][0][i] = 0;
  layernorm<HALVES>(x, gamma, beta, moments, [&](int s, int j, float4 v) {
    a[s][0][j] = pack_half2(v.x, v.y), a[s][0][j + 2] = pack_half2(v.z, v.w);
  });
}

/* The features of a row that a lane holds when a warp has the whole of it: 128 i + 4 lane ... + 3. */
struct Row {
  float4 v[6];
  static __device__ __forceinline__ int feature(int i) { return 128 * i + threadIdx.x % 32 * 4; }
};

/* One row by one warp, for fragments of GROUP 4 that are read two steps at a time: of each 32 features, 16 h + 4 t + i
 * goes to place 8 t + 4 h + i. */
__device__ __forceinline__ void normalise_row(const Row& x, const Row& gamma, const Row& beta, Blocked<__half, D>& to,
                                              int row) {
  float sum = 0, square = 0;
#pragma unroll
  for (int i = 0; i < 6; ++i) sum += (x.v[i].x + x.v[i].y) + (x.v[i].z + x.v[i].w);
  const float mean = warp_sum(sum) * (1.0f / D);
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    const float4 d = make_float4(x.v[i].x - mean, x.v[i].y - mean, x.v[i].z - mean, x.v[i].w - mean);
    square += (d.x * d.x + d.y * d.y) + (d.z * d.z + d.w * d.w);
  }
  const float scale = rsqrtf(warp_sum(square) * (1.0f / D) + LN_EPS);
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    const int k = x.feature(i);
    const float4 v = x.v[i], g = gamma.v[i], b = beta.v[i];
    send(to.at(row, k / 32 * 32 + k % 16 * 2 + k % 32 / 16 * 4),
         make_float4((v.x - mean) * scale * g.x + b.x, (v.y - mean) * scale * g.y + b.y,
                     (v.z - mean) * scale * g.z + b.z, (v.w - mean) * scale * g.w + b.w));
  }
}

}  // namespace small
