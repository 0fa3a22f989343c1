/* Online softmax over tiles of S = Q K^T, held as wgmma accumulators: two rows and SCORES scores a thread.

   With c = log2(e) / 8 and a reference r for each row, p = 2^(c s - c r + P_SHIFT): the softmax's numerators times a
   factor that the division by their sum takes out again. r is the largest score of the first tile, and after that a
   warp does not look for the largest score: it takes p with the r there is. If the p of a tile add up to more than
   P_LIMIT in some thread, the warp does that tile again, and from then on looks first (`wary`): where a score passes r
   by more than HEADROOM, r moves to it and what was summed up is scaled by 2^(c r_old - c r_new). Either way p <= 2^15,
   inside fp16, and P_SHIFT keeps small p out of its subnormals.
   Where scores lie so far from zero that c r would be felt in the FFMA's rounding (`far`), r is subtracted from the scores first. */
#pragma once
#include <cuda_runtime.h>

#include "common/exp2.cuh"

constexpr float SCORE_SCALE = 0.125f * 1.4426950408889634f;  // log2(e) / sqrt(HEAD_DIM)
constexpr float P_SHIFT = 7.0f;
constexpr float HEADROOM = 8.0f / SCORE_SCALE;
constexpr float P_LIMIT = 32768.0f;
constexpr float NO_SCORE = -1e30f;      // the reference before the first score: below every finite one, and finite itself
constexpr float FAR_REFERENCE = 65536;  // from here on r is subtracted from the scores themselves

// Over the four lanes that share a row.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

template <int SCORES>
struct OnlineSoftmax {
  float reference[2] = {NO_SCORE, NO_SCORE};
  float offset[2] = {-NO_SCORE * SCORE_SCALE, -NO_SCORE * SCORE_SCALE};  // P_SHIFT - c r, or P_SHIFT alone when `far`
  float sum[2] = {0, 0};                                                // over this thread's columns
  bool wary = false, far = false;                                                     // each the same for a warp

  // The largest score of each of the two rows, among this thread's.
  static __device__ __forceinline__ void largest(const float (&s)[SCORES], float (&top)[2]) {
    float t[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
    for (int i = 4; i < SCORES; i++) t[i & 3] = fmaxf(t[i & 3], s[i]);
    top[0] = fmaxf(t[0], t[1]);
    top[1] = fmaxf(t[2], t[3]);
  }

  // Looks for the largest scores and moves the reference if it must; true if it has, and then what was summed up must be multiplied by `rescale`.
  __device__ __forceinline__ bool look(float (&s)[SCORES], float (&rescale)[2]) {
    float top[2];
    largest(s, top);
    const bool above = __any_sync(0xffffffffu, top[0] > reference[0] + HEADROOM || top[1] > reference[1] + HEADROOM);
    if (above) move(top, rescale);
    if (far) {
#pragma unroll
      for (int i = 0; i < SCORES; i++) s[i] -= reference[(i >> 1) & 1];
    }
    return above;
  }

  __device__ __forceinline__ void move(const float (&top)[2], float (&rescale)[2]) {
    const float r0 = fmaxf(reference[0], quad_max(top[0])), r1 = fmaxf(reference[1], quad_max(top[1]));
    const bool now_far = __any_sync(0xffffffffu, fmaxf(fabsf(r0), fabsf(r1)) > FAR_REFERENCE);
    const float o0 = P_SHIFT - r0 * SCORE_SCALE, o1 = P_SHIFT - r1 * SCORE_SCALE;
    // by the offsets as they were rounded, so that the rounding cancels
    rescale[0] = exp2_approx(far || now_far ? (reference[0] - r0) * SCORE_SCALE : o0 - offset[0]);
    rescale[1] = exp2_approx(far || now_far ? (reference[1] - r1) * SCORE_SCALE : o1 - offset[1]);
    reference[0] = r0;
    reference[1] = r1;
    offset[0] = now_far ? P_SHIFT : o0;
    offset[1] = now_far ? P_SHIFT : o1;
    far = now_far;
    wary |= far;
    sum[0] *= rescale[0];
    sum[1] *= rescale[1];
  }

  // Scores become p, in place. False, for a whole warp, if some may be too large for fp16.
  __device__ __forceinline__ bool exponentials(float (&s)[SCORES], float (&tile_sum)[2]) const {
    tile_sum[0] = tile_sum[1] = 0;
#pragma unroll
    for (int i = 0; i < SCORES; i++) {
      s[i] = exp2_approx(fmaf(s[i], SCORE_SCALE, offset[(i >> 1) & 1]));
      tile_sum[(i >> 1) & 1] += s[i];
    }
    return !__any_sync(0xffffffffu, !wary && !(tile_sum[0] <= P_LIMIT && tile_sum[1] <= P_LIMIT));
  }
};
