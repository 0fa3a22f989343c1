/* LayerNorm of one row of 768 by one warp, in registers: mean, then the biased variance about it, then (x - mean) rstd gamma + beta as fp16. */
#pragma once
#include <cuda_fp16.h>
#include "common/fragment_sm90a.cuh"
#include "dims.h"

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

__device__ __forceinline__ float4 load_4(const float* p, bool aligned) {
  return aligned ? __ldg(reinterpret_cast<const float4*>(p)) : make_float4(__ldg(p), __ldg(p + 1), __ldg(p + 2), __ldg(p + 3));
}

// x and h are aligned; gamma and beta only if `aligned`
__device__ __forceinline__ void layernorm_row(const float* x, const float* gamma, const float* beta, bool aligned, __half* h) {
  constexpr int PIECES = D / 128;
  const int lane = threadIdx.x % 32;
  float4 v[PIECES], g[PIECES], b[PIECES];
#pragma unroll
  for (int i = 0; i < PIECES; i++) v[i] = __ldg(reinterpret_cast<const float4*>(x) + 32 * i + lane);
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    g[i] = load_4(gamma + 128 * i + 4 * lane, aligned);
    b[i] = load_4(beta + 128 * i + 4 * lane, aligned);
  }
  float sum = 0.f, squares = 0.f;
#pragma unroll
  for (int i = 0; i < PIECES; i++) sum += v[i].x + v[i].y + v[i].z + v[i].w;
  const float mean = warp_sum(sum) * (1.f / D);
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    v[i] = make_float4(v[i].x - mean, v[i].y - mean, v[i].z - mean, v[i].w - mean);
    squares += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
  }
  const float rstd = rsqrtf(warp_sum(squares) * (1.f / D) + LN_EPS);
#pragma unroll
  for (int i = 0; i < PIECES; i++)
    *(reinterpret_cast<uint2*>(h) + 32 * i + lane) =
        make_uint2(pack_half2(fmaf(v[i].x * rstd, g[i].x, b[i].x), fmaf(v[i].y * rstd, g[i].y, b[i].y)),
                   pack_half2(fmaf(v[i].z * rstd, g[i].z, b[i].z), fmaf(v[i].w * rstd, g[i].w, b[i].w)));
}
