/* The left operands of the exact block of few rows: copied, or normalised, into shared memory; and attention. */
#pragma once

#include "common/copy_sm90a.cuh"
#include "exact/exact_few_plan_sm90a.cuh"
#include "exact/exact_norm_sm90a.cuh"

namespace exact90 {

// a = D columns of `rows` rows that lie `pitch` apart, by the copies of each thread
__device__ __forceinline__ void bring_rows(const float* from, int pitch, float* a, int rows) {
  constexpr int QUADS = D / 4, ROWS = THREADS / QUADS;  // at a time
  static_assert(THREADS % QUADS == 0, "whole rows");
  int row = thread_index() / QUADS;
  const int column = thread_index() % QUADS * 4;
  uint32_t to = shared_address(a + row * A_PITCH + column);
  from += row * pitch + column;
#pragma unroll 4
  for (; row < rows; row += ROWS, from += ROWS * pitch, to += ROWS * A_PITCH * 4) copy_async_16(to, from);
}
__device__ __forceinline__ void bring_norm(const float* from, float* norm) {
#pragma unroll
  for (int i = 0; i < 2 * D; i += THREADS) copy_async_4(shared_address(norm + i + thread_index()), from + i + thread_index());
}

// One warp a row: a = LN(from) gamma + beta; `norm` has gamma, and beta behind it, after meanwhile(), which is called when the first loads have left.
template <class Meanwhile>
__device__ __forceinline__ void few_norm(const float* from, const float* norm, float* a, int rows, Meanwhile meanwhile) {
  const int lane = thread_index() % 32;
  int row = thread_index() / 32;
  Row next;
  next.zero();
  const auto fetch = [&] { next.fetch(from + row * D, lane); };
  if (row < rows) fetch();
  meanwhile();
#pragma unroll 1
  while (row < rows) {
    float4* const to = reinterpret_cast<float4*>(a + row * A_PITCH) + lane;
    Row x = next;
    if ((row += FEW_WARPS) < rows) fetch();
    const float variance = x.center(), about = rsqrtf(variance), newton = fmaf(-0.5f * variance * about, about, 1.5f);
    const float rstd = about == 0.f ? 0.f : about * newton;  // of a variance past fp32 0, as a division by it has it
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const float4 v = x.v[i], g = reinterpret_cast<const float4*>(norm)[32 * i + lane], b = reinterpret_cast<const float4*>(norm + D)[32 * i + lane];
      to[32 * i] = make_float4(fmaf(v.x * rstd, g.x, b.x), fmaf(v.y * rstd, g.y, b.y), fmaf(v.z * rstd, g.z, b.z), fmaf(v.w * rstd, g.w, b.w));
    }
  }
}

// One warp a row and head, two lanes a key of 16 at a time; of Q, K, V and the result a lane has two columns.
__device__ __forceinline__ void few_attention(const float* qkv, float* att, const ExactArgs& args) {
  constexpr int KEYS = 16;
  const int lane = thread_index() % 32;
  const auto pair = [](const float* p) { return __ldcg(reinterpret_cast<const float2*>(p)); };
#pragma unroll 1
  for (int i = thread_index() / 32 * crew.size + crew.rank; i < args.rows * HEADS; i += crew.size * FEW_WARPS) {
    const int row = i / HEADS, column = i % HEADS * HEAD_DIM + 2 * lane, begin = row / args.seq_len * args.seq_len;
    const int keys = args.causal ? row - begin + 1 : min(args.seq_len, args.rows - begin);
    const float2 q = pair(qkv + row * QKV + column);
    float most = -INFINITY, sum = 0.f, x = 0.f, y = 0.f;
#pragma unroll 1
    for (int first = 0; first < keys; first += KEYS) {
      float2 v[KEYS];
      float s[KEYS];
#pragma unroll
      for (int j = 0; j < KEYS; j++) {
        const float* const key = qkv + (begin + min(first + j, keys - 1)) * QKV + D + column;
        const float2 k = pair(key);
        v[j] = pair(key + D);
        s[j] = fmaf(q.x, k.x, q.y * k.y);
      }
      // Each step halves how many sums a lane has a part of.
#pragma unroll
      for (int step = 1; 1 << step <= KEYS; step++) {
        const int n = KEYS >> step;
        const bool upper = lane & 2 * n;
#pragma unroll
        for (int j = 0; j < KEYS / 2; j++) {
          if (j >= n) continue;
          const float other = __shfl_xor_sync(~0u, upper ? s[j] : s[j + n], 2 * n);
          s[j] = (upper ? s[j + n] : s[j]) + other;
        }
      }
      const float all = s[0] + __shfl_xor_sync(~0u, s[0], 1), score = first + lane / 2 < keys ? all * 0.125f : -INFINITY;
      float top = fmaxf(most, score);
#pragma unroll
      for (int lanes = 16; lanes >= 2; lanes /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
      const float p = expf(score - top), scale = expf(most - top);
      most = top, sum = fmaf(sum, scale, p), x *= scale, y *= scale;
#pragma unroll
      for (int j = 0; j < KEYS; j++) {
        const float share = __shfl_sync(~0u, p, 2 * j);
        x = fmaf(share, v[j].x, x), y = fmaf(share, v[j].y, y);
      }
    }
#pragma unroll
    for (int lanes = 16; lanes >= 2; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    const float scale = 1.f / sum;
    __stcg(reinterpret_cast<float2*>(att + row * D + column), make_float2(x * scale, y * scale));
  }
}

}  // namespace exact90
