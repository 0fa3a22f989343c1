/* The running softmax of one warp's queries: fp32, in powers of two.

   A weight is 2^(c s - c m), s the score, c = log2(e) / 8 and m a reference that need not be the maximum: it follows
   the row's maximum only when that has grown past 2^SLACK weights, which is rare, so that rescaling the output is rare
   too. Any m gives the same result once divided by the sum of the weights, and weights up to 2^SLACK keep their
   precision in fp16. */
#pragma once

#include "common/exp2.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"

// The accumulators of one warp: two by eight of 16 x 8, 32 queries by 64 keys, or by the 64 columns of the output.
using WarpScores = float[2][8][4];

// The weights of 32 queries by 64 keys as A fragments: two of 16 queries by four of 16 keys.
using WarpWeights = unsigned[2][4][4];

struct Softmax {
  static constexpr float SLACK = 8.f;
  static constexpr float NONE = -1e30f;  // finite, so that a row without a visible key yet meets no inf - inf

  // For each of the four rows that a thread shares with its quad: the reference, and this thread's part of the sum.
  float reference[4] = {NONE, NONE, NONE, NONE};
  float sum[4] = {};
  bool first = true;  // no tile yet

  // What the products of the next tile are added to, so that scores come out beside their reference. Beside it first and scaled then: of large scores a
  // product with c would leave its rounding, of which 2^ may be beyond fp16.
  __device__ void begin(WarpScores& scores) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float low = first ? 0.f : -reference[2 * i], high = first ? 0.f : -reference[2 * i + 1];
#pragma unroll
      for (int j = 0; j < 8; ++j) scores[i][j][0] = scores[i][j][1] = low, scores[i][j][2] = scores[i][j][3] = high;
    }
  }

  // Turns the scores of 64 keys, beside their reference, into their weights, as A fragments of P V; `out` and the sums
  // follow when a reference moves.
  __device__ void weigh(WarpScores& scores, WarpWeights& weights, WarpScores& out) {
    float top[4];
    bool outgrown = first;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      top[r] = NONE;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        top[r] = fmaxf(top[r], fmaxf(scores[r / 2][j][r % 2 * 2], scores[r / 2][j][r % 2 * 2 + 1]));
      outgrown |= top[r] > SLACK / SCORE_SCALE;
    }
    if (__any_sync(0xffffffffu, outgrown)) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float most = quad_max(top[r]), step = first ? most : fmaxf(most, 0.f);
        if (first)
          reference[r] = step;
        else
          move(r, reference[r] + step, step, out);
#pragma unroll
        for (int j = 0; j < 8; ++j) scores[r / 2][j][r % 2 * 2] -= step, scores[r / 2][j][r % 2 * 2 + 1] -= step;
      }
      first = false;
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float low = exp2_approx(scores[r / 2][j][r % 2 * 2] * SCORE_SCALE);
        const float high = exp2_approx(scores[r / 2][j][r % 2 * 2 + 1] * SCORE_SCALE);
        sum[r] += low + high;
        weights[r / 2][j / 2][j % 2 * 2 + r % 2] = pack_half2(low, high);
      }
    }
  }

  // One group of THREADS leaves its state for the other one's thread of the same place ...
  template <int THREADS>
  __device__ void leave(const WarpScores& out, float4* exchange) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float* v = out[i / 8][i % 8];
      exchange[i * THREADS] = make_float4(v[0], v[1], v[2], v[3]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
      exchange[(16 + i) * THREADS] = make_float4(reference[2 * i], reference[2 * i + 1], sum[2 * i], sum[2 * i + 1]);
  }

  // ... which adds it to its own.
  template <int THREADS>
  __device__ void merge(WarpScores& out, const float4* exchange) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 other = exchange[(16 + i) * THREADS];
      const float low = join(2 * i, other.x, other.z, out);
      const float high = join(2 * i + 1, other.y, other.w, out);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float4 v = exchange[(8 * i + j) * THREADS];
        out[i][j][0] += v.x * low;
        out[i][j][1] += v.y * low;
        out[i][j][2] += v.z * high;
        out[i][j][3] += v.w * high;
      }
    }
  }

  __device__ void normalise(WarpScores& out) const {
#pragma unroll
    for (int r = 0; r < 4; ++r) scale_row(r, 1.f / quad_sum(sum[r]), out);
  }

 private:
  // Row r takes in a sum under another reference; returns the factor of what else was weighed under it.
  __device__ float join(int r, float other_reference, float other_sum, WarpScores& out) {
    const float to = fmaxf(reference[r], other_reference);
    move(r, to, to - reference[r], out);
    const float factor = exp2_approx((other_reference - reference[r]) * SCORE_SCALE);
    sum[r] += other_sum * factor;
    return factor;
  }

  // `step` further on.
  __device__ void move(int r, float to, float step, WarpScores& out) {
    const float factor = exp2_approx(-step * SCORE_SCALE);
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
