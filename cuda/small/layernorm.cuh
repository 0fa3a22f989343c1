/* LayerNorm, in two forms. Up to 16 rows every block normalises eight of them, each warp holding 64 of the 768
   features in registers, as A fragments want them. Above, that would be too much to read for each: a warp somewhere
   does a row and sends it round, which takes one exchange more.

   Value s: row g, features 64 warp + 16 s + 4 t ... + 3. Two passes over the registers for a warp's own mean and sum of
   squared deviations, then the twelve pairs of a row are merged (Chan): nothing is lost to cancellation however far the
   mean is from zero. */
#pragma once

#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "common/sync_sm90a.cuh"
#include "small/exchange.cuh"
#include "small/layout.cuh"

namespace small {

struct Moments {
  float2 part[WARPS][8 + 4];  // mean of 64 features, sum of squared deviations from it; 4 more against bank conflicts
};

/* Mean and sum of squared deviations of as many numbers here as there (Chan et al., 1983), `half` being half of how
 * many. */
__device__ __forceinline__ float2 merge(float2 a, float half, int lanes) {
  const float2 b = make_float2(__shfl_xor_sync(0xffffffffu, a.x, lanes), __shfl_xor_sync(0xffffffffu, a.y, lanes));
  const float d = a.x - b.x;
  return make_float2(0.5f * (a.x + b.x), fmaf(d * half, d, a.y + b.y));
}

/* gamma[s], beta[s]: of features 64 warp + 16 s + 4 t ... + 3. put(s, what x[s] becomes) */
template <class Put>
__device__ __forceinline__ void layernorm(const float4 (&x)[4], const float4 (&gamma)[4], const float4 (&beta)[4],
                                          Moments& moments, Put put) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float sums[4], squares[4];
#pragma unroll
  for (int s = 0; s < 4; ++s) sums[s] = (x[s].x + x[s].y) + (x[s].z + x[s].w);
  const float own = ((sums[0] + sums[1]) + (sums[2] + sums[3])) * (1.0f / 16);  // mean of the lane's
  float4 d[4];
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    d[s] = make_float4(x[s].x - own, x[s].y - own, x[s].z - own, x[s].w - own);
    squares[s] = fmaf(d[s].x, d[s].x, fmaf(d[s].y, d[s].y, fmaf(d[s].z, d[s].z, d[s].w * d[s].w)));
  }
  const float2 lane = make_float2(own, (squares[0] + squares[1]) + (squares[2] + squares[3]));
  const float2 whole = merge(merge(lane, 8, 1), 16, 2);  // of the warp
  if (t == 0) moments.part[warp][g] = whole;
  named_barrier_sync(COMPUTING, THREADS);
  float2 part[3];  // lane t takes every fourth warp's
#pragma unroll
  for (int w = 0; w < 3; ++w) part[w] = moments.part[4 * w + t][g];
  const float mean = ((part[0].x + part[1].x) + part[2].x) * (1.0f / 3);
  float square = (part[0].y + part[1].y) + part[2].y;
#pragma unroll
  for (int w = 0; w < 3; ++w) square = fmaf(64.0f * (part[w].x - mean), part[w].x - mean, square);
  const float2 row = merge(merge(make_float2(mean, square), 96, 1), 192, 2);
  float scale;
  // 9.7.3.16
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(scale) : "f"(fmaf(row.y, 1.0f / D, LN_EPS)));
  const float shift = (own - row.x) * scale;
#pragma unroll
  for (int s = 0; s < 4; ++s)
    put(s, make_float4(fmaf(fmaf(d[s].x, scale, shift), gamma[s].x, beta[s].x),
                       fmaf(fmaf(d[s].y, scale, shift), gamma[s].y, beta[s].y),
                       fmaf(fmaf(d[s].z, scale, shift), gamma[s].z, beta[s].z),
                       fmaf(fmaf(d[s].w, scale, shift), gamma[s].w, beta[s].w)));
}

/* What cut_half2 leaves of two numbers; below 2^-14 not all of it. By their bits, not by converting back as exact's
 * split() does: 0.1 to 0.25 us less for 1 to 8 prepared rows on an H200. */
__device__ __forceinline__ uint32_t rest_half2(float low, float high) {
  const auto rest = [](float v) { return v - __uint_as_float(__float_as_uint(v) & 0xffffe000u); };
  return pack_half2(rest(low), rest(high));
}

/* The same as fragments: a[s][0] of step s. RESTS: its other eight rows are what fp16 leaves of these. */
template <bool RESTS>
__device__ __forceinline__ void layernorm(const float4 (&x)[4], const float4 (&gamma)[4], const float4 (&beta)[4],
                                          Moments& moments, uint32_t (&a)[4][1][4]) {
  layernorm(x, gamma, beta, moments, [&](int s, float4 v) {
    if constexpr (RESTS) {
      a[s][0][0] = cut_half2(v.x, v.y), a[s][0][2] = cut_half2(v.z, v.w);
      a[s][0][1] = rest_half2(v.x, v.y), a[s][0][3] = rest_half2(v.z, v.w);
    } else {
      a[s][0][0] = pack_half2(v.x, v.y), a[s][0][2] = pack_half2(v.z, v.w);
    }
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
