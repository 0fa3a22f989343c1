/* LayerNorm of one row by one warp.

   h = (x - mean) / sqrt(var + eps) * gamma + beta, var = mean((x - mean)^2), over a row of D = 768.
   Shapes: x (rows, D) fp32, gamma, beta (D) fp32, h (rows, D) fp16. Each lane keeps its 24 values in registers, so both
   passes (mean, then squared deviations) cost one read of x. Limiter: latency of one read up to about a thousand rows,
   then memory bandwidth (6 bytes an element). */
#pragma once

#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "dims.h"

constexpr int LAYERNORM_THREADS = 256;  // one row a warp: 8 rows a block

// Loads four floats at an index that is a multiple of four, whatever the alignment of `p`.
template <bool ALIGNED>
__device__ float4 load4(const float* p, int index) {
  if (ALIGNED) return *reinterpret_cast<const float4*>(p + index);
  return make_float4(p[index], p[index + 1], p[index + 2], p[index + 3]);
}

// store(column, four neighbours of h) for the lane's part of a row.
template <bool ALIGNED, class Store>
__device__ void normalise_row(const float* x, const float* gamma, const float* beta, int lane, Store store) {
  constexpr int VECTORS = D / 4 / 32;
  float4 v[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) v[i] = load4<true>(x, 4 * (lane + 32 * i));

  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
  const float mean = warp_sum(sum) * (1.f / D);

  float squares = 0.f;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    v[i] = make_float4(v[i].x - mean, v[i].y - mean, v[i].z - mean, v[i].w - mean);
    squares += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
  }
  const float scale = rsqrtf(warp_sum(squares) * (1.f / D) + LN_EPS);

#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int column = 4 * (lane + 32 * i);
    const float4 g = load4<ALIGNED>(gamma, column);
    const float4 b = load4<ALIGNED>(beta, column);
    store(column, make_float4(v[i].x * scale * g.x + b.x, v[i].y * scale * g.y + b.y, v[i].z * scale * g.z + b.z,
                              v[i].w * scale * g.w + b.w));
  }
}

// Block `block` of ceil(rows / 8). x_copy (rows, D), where it is not null, receives x as it is.
template <bool ALIGNED>
__device__ void layernorm_block(int block, const float* x, const float* gamma, const float* beta, __half* h, int rows,
                                float* x_copy) {
  const int row = block * (LAYERNORM_THREADS / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32;
  const size_t offset = static_cast<size_t>(row) * D;
  if (x_copy != nullptr)
#pragma unroll
    for (int i = 4 * lane; i < D; i += 128)
      *reinterpret_cast<float4*>(x_copy + offset + i) = load4<true>(x + offset, i);
  normalise_row<ALIGNED>(x + offset, gamma, beta, lane,
                         [&](int column, float4 v) { *reinterpret_cast<uint2*>(h + offset + column) = pack_half4(v); });
}
