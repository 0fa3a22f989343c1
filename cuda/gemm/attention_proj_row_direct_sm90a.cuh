/* The end of attention_proj_direct_sm90a.cuh, by 8 threads for each of the block's rows: x1 from the blocks' sums, four
   columns of each warpgroup's, the row's statistics from all tiles, h. */
#pragma once
#include <cuda_fp16.h>

#include "dims.h"
#include "gemm/gemm_direct_sm90a.cuh"
#include "gemm/statistics_sm90a.cuh"

struct AttentionProjArgs {
  const float* x;        // (rows, 768), 16-byte aligned
  const float* vectors;  // b_attn | gamma2 | beta2, aligned to 4 bytes
  const float* weights;  // (768, 768), aligned to 4 bytes; packed ones come by tensor map instead
  float* x1;             // (rows, 768)
  __half* h;             // (rows, 768)
  unsigned long long* statistics;  // (rows, 8)
  unsigned* alarms;
  int rows, seq_len, causal;
};

__device__ __forceinline__ float sum_8(float v) {
#pragma unroll
  for (int lanes = 4; lanes > 0; lanes /= 2) v += __shfl_xor_sync(~0u, v, lanes);
  return v;
}
__device__ __forceinline__ float4 add_4(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
__device__ __forceinline__ float4 subtract(float4 a, float b) { return make_float4(a.x - b, a.y - b, a.z - b, a.w - b); }

template <class A>
struct AttentionProjRow {
  static constexpr int PIECES = A::GROUPS;
  float4 extra[PIECES], gamma[PIECES], beta[PIECES];  // extra: x + bias
  int row, column;

  template <bool ALIGNED>
  __device__ __forceinline__ void load(const AttentionProjArgs& args) {
    const float* vectors = args.vectors + column;
    const float* x = args.x + static_cast<size_t>(row < args.rows ? row : 0) * D + column;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      extra[i] = fetch_4<true>(x + i * A::WIDE);
      gamma[i] = fetch_4<ALIGNED>(vectors + D + i * A::WIDE), beta[i] = fetch_4<ALIGNED>(vectors + 2 * D + i * A::WIDE);
      extra[i] = add_4(fetch_4<ALIGNED>(vectors + i * A::WIDE), extra[i]);
    }
  }

  // `from`: its place in the first block's first piece
  __device__ __forceinline__ void finish(const AttentionProjArgs& args, uint32_t from) const {
    const int place = threadIdx.x % 8;
    const bool there = row < args.rows;
    float4 v[PIECES];
    float mean = 0.f, spread = 0.f;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      v[i] = load_shared_4(from + i * A::PIECE);
#pragma unroll
      for (int b = 1; b < A::BLOCKS; b++) v[i] = add_4(v[i], load_shared_4(from + b * A::PART + i * A::PIECE));
      v[i] = add_4(v[i], extra[i]);
      mean += v[i].x + v[i].y + (v[i].z + v[i].w);
    }
    mean = sum_8(mean) * (1.f / A::COLUMNS);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const float4 e = subtract(v[i], mean);
      spread += fmaf(e.x, e.x, e.y * e.y) + fmaf(e.z, e.z, e.w * e.w);
    }
    spread = sum_8(spread);
    unsigned long long* statistics = args.statistics + static_cast<size_t>(row) * A::N_TILES;
    if (there && place == 0) publish_statistics(statistics + column / A::COLUMNS, mean, spread);
    float2 part[1][1] = {{make_float2(0.f, 0.f)}};
    if (there) {
#pragma unroll
      for (int i = 0; i < PIECES; i++) *reinterpret_cast<float4*>(args.x1 + static_cast<size_t>(row) * D + column + i * A::WIDE) = v[i];
      await_statistics(statistics + place, 0, part, args.alarms);
    }
    __syncwarp();
    const float whole = sum_8(part[0][0].x) * (1.f / A::N_TILES), off = part[0][0].x - whole;
    const float scale = rsqrtf(sum_8(fmaf(A::COLUMNS * off, off, part[0][0].y)) * (1.f / D) + LN_EPS), shift = -whole * scale;
    if (!there) return;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
      *reinterpret_cast<uint2*>(args.h + static_cast<size_t>(row) * D + column + i * A::WIDE) =
          make_uint2(pack_half2(fmaf(fmaf(v[i].x, scale, shift), gamma[i].x, beta[i].x), fmaf(fmaf(v[i].y, scale, shift), gamma[i].y, beta[i].y)),
                     pack_half2(fmaf(fmaf(v[i].z, scale, shift), gamma[i].z, beta[i].z), fmaf(fmaf(v[i].w, scale, shift), gamma[i].w, beta[i].w)));
  }
};
