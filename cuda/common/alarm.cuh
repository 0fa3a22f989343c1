/* Alarms: what the fast kernels note about the weights while they read them anyway, and the rule that decides afterwards
   whether their result stands.

   `alarms` holds one word for each Alarm, 0 while all is as usual: the largest magnitude of a matrix or vector, or the
   largest mean square of a part of a matrix, as the bits of a float (positive floats order like their bits), and only
   where it is beyond the usual. So a call on usual weights writes no alarm at all, and the words depend on the weights
   alone, not on the order of the blocks. */
#pragma once

#include "dims.h"

enum Alarm {
  ALARM_LARGEST = 0,  // + Matrix: largest magnitude
  ALARM_SQUARES = 4,  // + Matrix: largest mean square of a part
  ALARM_TINY = 8,     // bit Matrix: a part is not zero and far below the usual
  ALARM_GAMMA1,
  ALARM_BETA1,
  ALARM_GAMMA2,
  ALARM_BETA2,
  ALARM_B_QKV,
  ALARM_B_FC,
  ALARMS = 16
};
enum Matrix { MATRIX_QKV, MATRIX_ATTN, MATRIX_FC, MATRIX_PROJ };

// The challenge has weights N(0, 0.02), of which none in 7 million reaches 0.12 and no 512 have a root mean square of
// 0.0245; gamma up to 1.2; beta up to 0.1; and biases of zero.
constexpr float USUAL_WEIGHT = 0.14f, USUAL_SQUARES = 0.0245f * 0.0245f, TINY_WEIGHT = 1.f / 1024;
constexpr float USUAL_GAMMA = 1.25f, USUAL_BETA = 0.125f, USUAL_BIAS = 0.125f;

// How the result is chosen.
enum Rule { RULE_EXACT, RULE_FAST, RULE_AUTO };

__device__ __forceinline__ void raise(unsigned* alarms, int alarm, float value, float usual) {
  if (!(value <= usual)) atomicMax(alarms + alarm, __float_as_uint(value) & 0x7fffffffu);  // also a NaN
}

// What one thread has seen of a matrix.
struct Observation {
  float largest = 0.f, squares = 0.f;

  __device__ __forceinline__ void add(float w) {
    largest = fmaxf(largest, fabsf(w));
    squares = fmaf(w, w, squares);
  }
  __device__ __forceinline__ void add(float4 w) { add(w.x), add(w.y), add(w.z), add(w.w); }

  // By a whole warp, which has seen `count` weights; the mean square of a few says nothing.
  __device__ __forceinline__ void report(unsigned* alarms, int matrix, float count) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
      squares += __shfl_xor_sync(~0u, squares, lanes);
    }
    if (threadIdx.x % 32 != 0) return;
    raise(alarms, ALARM_LARGEST + matrix, largest, USUAL_WEIGHT);
    if (count >= 512) raise(alarms, ALARM_SQUARES + matrix, squares / count, USUAL_SQUARES);
    if (largest > 0.f && largest < TINY_WEIGHT) atomicOr(alarms + ALARM_TINY, 1u << matrix);
  }
};
