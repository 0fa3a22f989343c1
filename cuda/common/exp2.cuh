/* 2^v to two units in the last place, subnormal results flushed to zero (PTX ISA 9.0, section 9.7.3.21, "ex2"), and what makes it
   exp(v) and the exponential of a score. */
#pragma once

#include "dims.h"

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float SCORE_SCALE = LOG2_E / 8;  // of a score Q K^T: log2(e) / sqrt(HEAD_DIM)
static_assert(HEAD_DIM == 64, "scores are divided by sqrt(HEAD_DIM) = 8");

__device__ inline float exp2_approx(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
