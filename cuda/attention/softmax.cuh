/* The running softmax of one warp's 32 queries: fp32, in powers of two.

   A weight is 2^(c s - c m), s the score, c = log2(e) / 8 and m a reference that need not be the maximum: it follows
   the row's maximum only when that has grown past 2^SLACK weights, which is rare, so that rescaling the output is rare
   too. Any m gives the same result once divided by the sum of the weights, and weights up to 2^SLACK keep their
   precision in fp16. */
#pragma once

#include "common/exp2.cuh"
#include "common/reduce.cuh"
#include "dims.h"

// Two by eight mma accumulators of 16 x 8: 32 queries by 64 keys, or by the 64 columns of the output.
using WarpScores = float[2][8][4];

struct Softmax {
  static constexpr float SCALE = 1.4426950408889634f / 8.f;
  static_assert(HEAD_DIM == 64, "scores are divided by sqrt(HEAD_DIM) = 8");
  static constexpr float SLACK = 8.f;
  static constexpr float NONE = -1e30f;  // finite, so that a row without a visible key yet meets no inf - inf
  static constexpr int GROUP_THREADS = 128;

  // For each of the four rows that a thread shares with its quad: the reference, and this thread's part of the sum.
  float reference[4] = {NONE, NONE, NONE, NONE};
  float sum[4] = {};

  // Scores become weights; `out` and the sums follow when a reference moves.
  __device__ void weigh(WarpScores& scores, WarpScores& out) {
    float top[4];
    bool outgrown = false;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      top[r] = NONE;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        top[r] = fmaxf(top[r], fmaxf(scores[r / 2][j][r % 2 * 2], scores[r / 2][j][r % 2 * 2 + 1]));
      outgrown |= top[r] > reference[r] + SLACK / SCALE;
    }
    if (__any_sync(0xffffffffu, outgrown)) {
#pragma unroll
      for (int r = 0; r < 4; ++r) move(r, fmaxf(reference[r], quad_max(top[r])), out);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float shift = reference[r] * SCALE;
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = r % 2 * 2; e < r % 2 * 2 + 2; ++e) {
          const float weight = exp2_approx(scores[r / 2][j][e] * SCALE - shift);
          scores[r / 2][j][e] = weight;
          sum[r] += weight;
        }
    }
  }

  // The second group leaves its state for the first one's thread of the same place ...
  __device__ void leave(const WarpScores& out, float4* exchange) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float* v = out[i / 8][i % 8];
      exchange[i * GROUP_THREADS] = make_float4(v[0], v[1], v[2], v[3]);
    }
    exchange[16 * GROUP_THREADS] = make_float4(reference[0], reference[1], reference[2], reference[3]);
    exchange[17 * GROUP_THREADS] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  }

  // ... which adds it to its own.
  __device__ void merge(WarpScores& out, const float4* exchange) {
    const float4 other_reference = exchange[16 * GROUP_THREADS];
    const float4 other_sum = exchange[17 * GROUP_THREADS];
    const float references[4] = {other_reference.x, other_reference.y, other_reference.z, other_reference.w};
    const float sums[4] = {other_sum.x, other_sum.y, other_sum.z, other_sum.w};
    float factor[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      move(r, fmaxf(reference[r], references[r]), out);
      factor[r] = exp2_approx((references[r] - reference[r]) * SCALE);
      sum[r] += sums[r] * factor[r];
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float4 v = exchange[i * GROUP_THREADS];
      float* o = out[i / 8][i % 8];
      o[0] += v.x * factor[i / 8 * 2];
      o[1] += v.y * factor[i / 8 * 2];
      o[2] += v.z * factor[i / 8 * 2 + 1];
      o[3] += v.w * factor[i / 8 * 2 + 1];
    }
  }

  __device__ void normalise(WarpScores& out) const {
#pragma unroll
    for (int r = 0; r < 4; ++r) scale_row(r, 1.f / quad_sum(sum[r]), out);
  }

 private:
  __device__ void move(int r, float to, WarpScores& out) {
    const float factor = exp2_approx((reference[r] - to) * SCALE);
    reference[r] = to;
    sum[r] *= factor;
    scale_row(r, factor, out);
  }

  static __device__ void scale_row(int r, float factor, WarpScores& out) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      out[r / 2][j][r % 2 * 2] *= factor;
      out[r / 2][j][r % 2 * 2 + 1] *= factor;
    }
  }
};
