/* Online softmax over tiles of S = Q K^T, held as wgmma accumulators: two rows and SCORES scores a thread.

   With c = log2(e) / 8 and a reference r for each row, p = 2^(c (s - r)): the softmax's numerators times a factor that the division by their sum takes out
   again. Where queries and keys are so short that no score can be far from 0 (lengths_sm90a.cuh), r is 0, nobody looks for the largest score, nothing is
   subtracted, and c is in Q (attention_consumer_sm90a.cuh). Else a warp looks first: where a score passes r by more than HEADROOM, r moves to P_SHIFT below
   it, and what was summed up is scaled by 2^(c (r_old - r_new)). Either way p <= 2^15, inside fp16, and the p that count are kept out of its subnormals: by
   TAME, or by P_SHIFT. */
#pragma once
#include <cuda_fp16.h>

#include "common/exp2.cuh"
#include "common/reduce.cuh"

constexpr float TAME = 14.0f / SCORE_SCALE;
// Where the squares of the longest query and of the longest key have a product of at most this, no score is beyond +-TAME: each is good to 1 %.
constexpr float TAME_SQUARES = 0.98f * TAME * TAME;
constexpr float P_BITS = 7.0f, P_SHIFT = P_BITS / SCORE_SCALE;
constexpr float HEADROOM = 15.0f / SCORE_SCALE;
constexpr float NO_SCORE = -1e30f;  // the reference before the first score: below every finite one, and finite itself

// PTX ISA 9.0, 9.7.3.13 rcp: off by one unit in the last place at most
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <int SCORES>
struct OnlineSoftmax {
  float reference[2] = {0, 0};
  float sum[2] = {0, 0};  // over this thread's columns

  // Before the exponentials of the first tile, unless scores are known to be small
  __device__ __forceinline__ void begin(const float (&s)[SCORES]) {
    float top[2];
    largest(s, top);
#pragma unroll
    for (int h = 0; h < 2; h++) reference[h] = fmaxf(NO_SCORE, quad_max(top[h]) - P_SHIFT);
  }

  // What a row's sum of `all` and its O are to be weighed by: 0 would outweigh others where there is no key
  __device__ __forceinline__ float reference_of(int h, float all) const { return all == 0 ? NO_SCORE : reference[h]; }

  // The largest score of each of the two rows, among this thread's.
  static __device__ __forceinline__ void largest(const float (&s)[SCORES], float (&top)[2]) {
    float t[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
    for (int i = 4; i < SCORES; i++) t[i & 3] = fmaxf(t[i & 3], s[i]);
    top[0] = fmaxf(t[0], t[1]);
    top[1] = fmaxf(t[2], t[3]);
  }

  // Whether the references are too small for these scores
  __device__ __forceinline__ bool too_small(const float (&s)[SCORES]) const {
    float top[2];
    largest(s, top);
    // By the difference, which is exact: of large scores a sum may be rounded to more, and p be beyond fp16.
    return __any_sync(0xffffffffu, top[0] - reference[0] > HEADROOM || top[1] - reference[1] > HEADROOM);
  }

  // Moves them; what was summed up must be multiplied by `rescale`.
  __device__ __forceinline__ void move(const float (&s)[SCORES], float (&rescale)[2]) {
    float top[2];
    largest(s, top);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float r = fmaxf(reference[h], quad_max(top[h]) - P_SHIFT);
      rescale[h] = exp2_approx((reference[h] - r) * SCORE_SCALE);
      reference[h] = r;
      sum[h] *= rescale[h];
    }
  }

  /* Scores FROM to TO - 1 become p, in place. Without REFERENCES these are 0; without SCALE the scores are times SCORE_SCALE. Where rows may have few keys they
     ROUND: p adds up as the products have it, so that one key has weight 1 whatever its p. */
  template <bool REFERENCES, bool SCALE, bool ROUND = false, int FROM = 0, int TO = SCORES>
  __device__ __forceinline__ void exponentials(float (&s)[SCORES]) {
#pragma unroll
    for (int i = FROM; i < TO; i++) {
      const int h = (i >> 1) & 1;
      const float difference = REFERENCES ? s[i] - reference[h] : s[i];
      s[i] = exp2_approx(SCALE ? difference * SCORE_SCALE : difference);
      if (ROUND) s[i] = __half2float(__float2half_rn(s[i]));
      sum[h] += s[i];
    }
  }
};
