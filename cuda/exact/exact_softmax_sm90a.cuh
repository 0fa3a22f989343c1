/* Online softmax over steps of KEYS keys, held as wgmma accumulators: two rows and 32 scores a thread.

   p = 2^(c (s - r) + P_EXPONENT): the softmax's numerators times a factor that the division by their sum takes out again.
   c takes scores to exponents of 2; r, the row's reference, is near its largest score so far. Not looking for the largest
   score is the rule: a step whose p add up to no more than P_LIMIT in every thread is taken as it is. Else a warp looks,
   now and in all later steps, moves r to a score that passed it by more than 2^P_HEADROOM, and scales what was summed up.
   p is one fma and one ex2, with r in the fma's offset, unless an offset is so large that it would be felt there (`far`). */
#pragma once

#include <cfloat>

#include "common/exp2.cuh"
#include "common/reduce.cuh"

namespace exact90 {

constexpr int KEYS = 64;  // of a step, half a tile
constexpr float P_EXPONENT = 5.f, P_HEADROOM = 8.f, P_LIMIT = 32768.f;  // all inside fp16, lo with all bits that count
constexpr float FAR = 65536.f;

struct Softmax {
  float c, reference[2] = {-FLT_MAX, -FLT_MAX}, sum[2] = {0.f, 0.f};
  bool far = true, overflowed = false;  // the same in a warp

  // No key that a row does not see (-inf) may become a NaN, whatever the scales.
  __device__ __forceinline__ explicit Softmax(float inverse_scale)
      : c(fmaxf(0.125f * 1.44269504089f * inverse_scale * inverse_scale, FLT_MIN)) {}

  __device__ __forceinline__ bool wary() const { return far || overflowed; }
  __device__ __forceinline__ float offset_of(float r) const { return fmaf(-r, c, P_EXPONENT); }
  __device__ __forceinline__ float offset(int r) const { return far ? P_EXPONENT : offset_of(reference[r]); }
  // Takes sums of p from one reference to another; by the offsets as they were rounded, so that the rounding cancels.
  __device__ __forceinline__ float change(float from, float to) const {
    const float a = offset_of(from), b = offset_of(to);
    return exp2_approx(fmaxf(fabsf(a), fabsf(b)) > FAR ? (from - to) * c : b - a);
  }

  // Looks for the largest scores, and moves the references if it must: then true, and what was summed up must be multiplied
  // by `rescale`.
  __device__ __forceinline__ bool look(float (&s)[KEYS / 2], float (&rescale)[2]) {
    float top[2] = {s[0], s[2]};
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) top[i >> 1 & 1] = fmaxf(top[i >> 1 & 1], s[i]);
    const bool moves = __any_sync(~0u, (top[0] - reference[0]) * c > P_HEADROOM || (top[1] - reference[1]) * c > P_HEADROOM);
    if (moves) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float to = fmaxf(reference[r], quad_max(top[r]));
        rescale[r] = change(reference[r], to);
        sum[r] *= rescale[r];
        reference[r] = to;
      }
    }
    // True, too, while a row has no reference, unless c is so small that it needs none.
    far = __any_sync(~0u, fmaxf(fabsf(offset_of(reference[0])), fabsf(offset_of(reference[1]))) > FAR);
    if (far) {
#pragma unroll
      for (int i = 0; i < KEYS / 2; i++) s[i] -= reference[i >> 1 & 1];
    }
    return moves;
  }

  // Whether a step's p may be used though nobody looked.
  __device__ __forceinline__ bool fits(const float (&add)[2]) const {
    return !__any_sync(~0u, !(add[0] <= P_LIMIT && add[1] <= P_LIMIT));
  }

  // Joins sums over other keys of the same rows; mine, its: what the outputs must be multiplied by.
  __device__ __forceinline__ void join(const float (&its_reference)[2], const float (&its_sum)[2], float (&mine)[2], float (&its)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float to = fmaxf(reference[r], its_reference[r]);
      mine[r] = change(reference[r], to);
      its[r] = change(its_reference[r], to);
      sum[r] = fmaf(its_sum[r], its[r], sum[r] * mine[r]);
      reference[r] = to;
    }
  }
};

}  // namespace exact90
