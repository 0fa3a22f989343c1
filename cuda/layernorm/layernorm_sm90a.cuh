/* LayerNorm of rows of 768, a warp each, in registers: mean, then the biased variance about it, then (x - mean) rstd gamma + beta as fp16.
   gamma and beta come through shared memory, once a block and asked for together with x. In registers beside x they would not fit, and the compiler
   fetches them two by two behind the sums, each time waiting for L2. */
#pragma once
#include <cuda_fp16.h>
#include "common/copy_sm90a.cuh"
#include "common/fragment_sm90a.cuh"
#include "common/reduce.cuh"
#include "dims.h"

struct LayernormRow {
  static constexpr int PIECES = D / 128;
  float4 v[PIECES];

  // `x` is aligned. In a caller's graph the kernel that writes it may still run when this one begins, so it is not read by __ldg.
  __device__ __forceinline__ void load(const float* x) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) v[i] = reinterpret_cast<const float4*>(x)[32 * i + threadIdx.x % 32];
  }

  __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int i = 0; i < PIECES; i++) reinterpret_cast<float4*>(to)[32 * i + threadIdx.x % 32] = v[i];
  }

  // Returns mean and variance.
  __device__ __forceinline__ float2 normalise() {
    float sum = 0.f, squares = 0.f;
#pragma unroll
    for (int i = 0; i < PIECES; i++) sum += v[i].x + v[i].y + v[i].z + v[i].w;
    const float mean = warp_sum(sum) * (1.f / D);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      v[i] = make_float4(v[i].x - mean, v[i].y - mean, v[i].z - mean, v[i].w - mean);
      squares += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
    }
    const float variance = warp_sum(squares) * (1.f / D), rstd = rsqrtf(variance + LN_EPS);
#pragma unroll
    for (int i = 0; i < PIECES; i++) v[i] = make_float4(v[i].x * rstd, v[i].y * rstd, v[i].z * rstd, v[i].w * rstd);
    return make_float2(mean, variance);
  }

  // `affine`: gamma and beta, in shared memory
  __device__ __forceinline__ void store_scaled(uint32_t affine, __half* h) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const float4 g = load_shared_4(affine + 512 * i + 16 * lane), b = load_shared_4(affine + 4 * D + 512 * i + 16 * lane);
      *(reinterpret_cast<uint2*>(h) + 32 * i + lane) = make_uint2(pack_half2(fmaf(v[i].x, g.x, b.x), fmaf(v[i].y, g.y, b.y)),
                                                                  pack_half2(fmaf(v[i].z, g.z, b.z), fmaf(v[i].w, g.w, b.w)));
    }
  }
};

// gamma and beta, which lie behind each other, into shared memory, by a block
template <int THREADS>
__device__ __forceinline__ void fetch_affine(uint32_t to, const float* from, bool aligned) {
  if (aligned) {
    static_assert(THREADS >= 2 * D / 4 || 2 * D / 4 == THREADS + 128);
    if (THREADS < 2 * D / 4 || threadIdx.x < 2 * D / 4) copy_async_16(to + 16 * threadIdx.x, from + 4 * threadIdx.x);
    if (THREADS < 2 * D / 4 && threadIdx.x < 128) copy_async_16(to + 16 * (threadIdx.x + THREADS), from + 4 * (threadIdx.x + THREADS));
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < 2 * D; i += THREADS) copy_async_4(to + 4 * i, from + i);
  }
}
