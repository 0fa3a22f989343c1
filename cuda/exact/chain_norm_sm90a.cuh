/* h = LayerNorm(x) gamma + beta as the left operand of the exact chain's next product, one warp a row. Limiter: latency. */
#pragma once

#include "exact/chain_operand_sm90a.cuh"
#include "exact/exact_norm_sm90a.cuh"

namespace exact90 {

constexpr int NORM_THREADS = 64;

// `vectors`: gamma and beta behind it, aligned to 4 bytes
__device__ __forceinline__ void chain_norm(const float* x, const float* vectors, const Operand& h, int rows) {
  const int lane = threadIdx.x % 32, row = blockIdx.x * (NORM_THREADS / 32) + threadIdx.x / 32;
  const Norm norm(vectors, vectors + D, aligned_16(vectors), lane);
  pdl_launch();
  pdl_wait();
  if (row >= rows) return;
  Row v;
  v.fetch(x + static_cast<size_t>(row) * D, lane);
  const float rstd = 1.f / sqrtf(v.center());
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    const float4 g = norm.gamma.v[i], b = norm.beta.v[i], y = v.v[i];
    v.v[i] = make_float4(fmaf(y.x * rstd, g.x, b.x), fmaf(y.y * rstd, g.y, b.y), fmaf(y.z * rstd, g.z, b.z), fmaf(y.w * rstd, g.w, b.w));
  }
  const float scale = scale_for(v.largest());
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    const float4 y = v.v[i];
    const Split left = split(y.x * scale, y.y * scale), right = split(y.z * scale, y.w * scale);
    unsigned char* const to = h.place(row, 128 * i + 4 * lane);
    *reinterpret_cast<uint2*>(to) = make_uint2(left.hi, right.hi);
    *reinterpret_cast<uint2*>(to + IMAGE) = make_uint2(left.lo, right.lo);
  }
  if (lane < D / PART) *h.inverse_at(row, lane) = inverse(scale);
}

}  // namespace exact90
