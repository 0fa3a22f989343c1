/* The exact block: what every architecture's form of it shares.

   output = x1 + gelu(LN2(x1) W_fc + b_fc) W_proj + b_proj,  x1 = x + attention(LN1(x) W_qkv + b_qkv) W_attn + b_attn
   as good as fp32 arithmetic gives it, on any finite input, with fp16 tensor cores: an operand v is s v = hi + lo, two
   fp16 numbers that hold 22 bits of it, and a product is hi hi + hi lo + lo hi, summed in fp32. The scale s is a power of
   two from a bound that always holds, so nothing overflows, lo keeps its bits, and 1 / s takes it back exactly.

   One resident kernel does it all (one block per SM, grid barriers between its stages), or, on Hopper in precision exact, a
   chain of launches. Behind a chain of fast kernels the resident one first reads their alarms and ends at
   once where their result stands. */
#pragma once

#include <cuda_fp16.h>

#include "common/alarm.cuh"
#include "common/bound.cuh"
#include "common/exp2.cuh"
#include "dims.h"

enum ExactPhases { EXACT_CAST = 1, EXACT_FORWARD = 2 };

// What the exact kernel waits for before it reads the alarms. It starts when the last kernel in front lets it, behind the end of all others. UNKNOWN: for the
// end of that one, which may raise some. NONE: for nothing, as it raises none. STANDING: the same, and where none are raised it ends without that one's end.
enum Watchers { WATCHERS_STANDING = -2, WATCHERS_UNKNOWN = -1, WATCHERS_NONE = 0 };

struct ExactArgs {
  const float* x;         // (rows, D), 16-byte aligned
  float* output;          // (rows, D), 16-byte aligned; may be x
  const float* weights;   // the caller's, aligned to 4 bytes; not read without EXACT_CAST
  unsigned char* memory;  // 256-byte aligned; its first 256 bytes are 0 before the first launch
  unsigned* alarms;       // [ALARMS], 16-byte aligned; small/watch.cuh finds sets of its own behind them
  int rows, seq_len, causal;
  int phases;       // EXACT_CAST: bring the weights into memory; EXACT_FORWARD: compute. CAST alone raises the alarms.
  int rule;         // of Rule: whether to compute at all
  int keep_alarms;  // else they are set back to 0 after a computation
  int watchers;     // warps of the predecessor that raise alarms and count themselves when they have; or one of Watchers
  int sms;          // multiprocessors, by which the products are cut: of a launch with fewer blocks the same bits come
};

extern "C" __global__ void exact(const ExactArgs args);  // defined once for each architecture

// ---- the decision

// All words, asked for before one is looked at
struct Alarms {
  unsigned words[ALARMS];
  __device__ __forceinline__ explicit Alarms(const unsigned* alarms) {
#pragma unroll
    for (int i = 0; i < ALARMS; i += 4) {
      const uint4 v = __ldcg(reinterpret_cast<const uint4*>(alarms + i));
      words[i] = v.x, words[i + 1] = v.y, words[i + 2] = v.z, words[i + 3] = v.w;
    }
  }
  // Whether one is raised, but for this one
  __device__ __forceinline__ bool any(int but = ALARMS) const {
    unsigned all = 0;
#pragma unroll
    for (int i = 0; i < ALARMS; i++) all |= i == but ? 0 : words[i];
    return all != 0;
  }
};
__device__ __forceinline__ bool any_raised(const unsigned* alarms) { return Alarms(alarms).any(); }

// Whether the fast result must not stand. FAST: fp16 might overflow, or lose small weights beside large values. AUTO:
// anything is unusual, but for zeros.
__device__ inline bool must_rescue(const unsigned* alarms, int rule, bool& raised) {
  constexpr float HALF_MAX = 65504.f, NORM_MAX = 27.72f;  // of |x - mean| rstd in a row of 768: sqrt(767)
  // However small an operand is, fp16 is within 3e-8 of it, and a column of such weights, of random signs, makes at most 8.5e-4 of that.
  constexpr float ATTN_MAX = 1024.f, PROJ_MAX = 512.f;
  raised = true;
  if (rule == RULE_EXACT) return true;
  const Alarms all(alarms);
  raised = all.any();
  if (!raised) return false;
  const unsigned tiny = all.words[ALARM_TINY] & ((1u << VANISHED) - 1), vanished = all.words[ALARM_TINY] >> VANISHED;
  const bool large = all.any(ALARM_TINY);
  if (rule == RULE_AUTO) return tiny != 0 || large;
  const auto value = [&](int alarm, float usual) { return all.words[alarm] == 0 ? usual : __uint_as_float(all.words[alarm]); };
  const auto largest = [&](int matrix) { return value(ALARM_LARGEST + matrix, USUAL_WEIGHT); };
  const float gamma1 = value(ALARM_GAMMA1, USUAL_GAMMA), beta1 = value(ALARM_BETA1, USUAL_BETA);
  const float gamma2 = value(ALARM_GAMMA2, USUAL_GAMMA), beta2 = value(ALARM_BETA2, USUAL_BETA);
  const float b_qkv = value(ALARM_B_QKV, USUAL_BIAS), b_fc = value(ALARM_B_FC, USUAL_BIAS);
  const bool fits = NORM_MAX * gamma1 + beta1 < HALF_MAX && NORM_MAX * gamma2 + beta2 < HALF_MAX &&
                    D * largest(MATRIX_QKV) * (gamma1 + beta1) + b_qkv < HALF_MAX &&
                    D * largest(MATRIX_FC) * (gamma2 + beta2) + b_fc < HALF_MAX && largest(MATRIX_ATTN) < ATTN_MAX &&
                    largest(MATRIX_PROJ) < PROJ_MAX;  // false, too, where anything is not a number
  // Beside less than this what vanishes, up to 3e-8 of random signs, makes an error of 1e-3 at most.
  constexpr float LOUD = 16.f;
  float loudest = fmaxf(fmaxf(fmaxf(gamma1, beta1), fmaxf(gamma2, beta2)), fmaxf(b_qkv, b_fc));
  for (int matrix = MATRIX_QKV; matrix <= MATRIX_PROJ; matrix++) loudest = fmaxf(loudest, largest(matrix));
  return !fits || all.words[ALARM_SHIFT] != 0 || (tiny != 0 && large) || (vanished != 0 && loudest > LOUD);
}

// ---- scales

// |LN(x)| of any row, and |LN(x) W + b| of any column: |xhat| <= sqrt(767) and sum |xhat| <= 768.
__host__ __device__ constexpr float norm_bound(float gamma, float beta) { return 27.72f * gamma + beta; }
__host__ __device__ constexpr float product_bound(float gamma, float beta, float weight, float bias) {
  return D * weight * (gamma + beta) + bias;
}

// The power of two that brings `bound` into [2^13, 2^14), but never so far that it or its inverse leaves fp32: 2^100 for 0, whose inverse is then below that
// of any neighbour, as the largest inverse bounds the weights.
__device__ __forceinline__ float scale_for(float bound) {
  const int exponent = __float_as_uint(bound) >> 23 & 255;
  return __uint_as_float(static_cast<unsigned>(min(max(267 - exponent, 12), 227)) << 23);
}
// 1 / s, exactly, of a power of two
__device__ __forceinline__ float inverse(float scale) { return __uint_as_float((254u << 23) - __float_as_uint(scale)); }

// Two scaled values in two halves each, packed with `a` in the lower half.
struct Split {
  unsigned hi, lo;
};
__device__ __forceinline__ Split split(float a, float b) {
  const __half2 hi = __floats2half2_rn(a, b);
  const float2 back = __half22float2(hi);
  const __half2 lo = __floats2half2_rn(a - back.x, b - back.y);
  return {*reinterpret_cast<const unsigned*>(&hi), *reinterpret_cast<const unsigned*>(&lo)};
}

// tanh GELU to fp32 accuracy: x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3). The exponent of 2 has -2 log2(e) in it.
__device__ __forceinline__ float gelu_exact(float x) {
  constexpr float SCALE = -2 * LOG2_E * 0.7978845608028654f;
  const float e = exp2_approx(x * fmaf(0.044715f * SCALE, x * x, SCALE));
  float sigmoid;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(1.f + e));  // PTX ISA 9.0, 9.7.3.13
  return x * sigmoid;
}

// ---- grid barrier

constexpr unsigned MOST_POLLS = 67108864;  // of what may take long

/* All blocks meet. The word's top bit turns over each time and the other bits return to 0, so it is ready for the next
   launch, of whatever grid. Only one thread of a block calls meet(), or its two halves, between two barriers of the block. */
struct GridBarrier {
  static constexpr unsigned TOP = 0x80000000u;
  unsigned* word;
  unsigned top;     // the bit as it is now
  int rank, blocks;  // this block among those that meet

  // Before the block's first meeting: the bit cannot turn without it.
  __device__ GridBarrier(unsigned char* memory, int rank, int blocks) : GridBarrier(memory, 0, rank, blocks) { top = look() & TOP; }
  __device__ GridBarrier(unsigned char* memory, unsigned top, int rank, int blocks)
      : word(reinterpret_cast<unsigned*>(memory)), top(top), rank(rank), blocks(blocks) {}

  __device__ __forceinline__ void meet() {
    arrive();
    await();
  }
  __device__ __forceinline__ void arrive() const {
    const unsigned add = rank == 0 ? TOP - (blocks - 1) : 1;
    asm volatile("red.add.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(add) : "memory");  // PTX ISA 9.0, 9.7.13.6
  }
  __device__ __forceinline__ void await() {
    unsigned polls = 0;
    while ((look() & TOP) == top) bound<MOST_POLLS>(++polls);
    top ^= TOP;
  }

 private:
  __device__ __forceinline__ unsigned look() const {
    unsigned now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");  // 9.7.9.8
    return now;
  }
};
