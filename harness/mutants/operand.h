/* What an operand of a matrix product becomes before it is multiplied: itself, except in the precision mutants. */
#ifndef OPERAND_H
#define OPERAND_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "mutant.h"

static inline uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static inline float of_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

// Keeps the upper bits of the significand, rounded to nearest even; `dropped` of 23 stored bits go.
static inline float round_bits(float x, int dropped) {
  uint32_t u = bits_of(x);
  return of_bits((u + (1u << (dropped - 1)) - 1 + (u >> dropped & 1)) & ~((1u << dropped) - 1));
}

// binary16 as a plain cast makes it: infinity from 65520 up, steps of 2^-24 below 2^-14.
static inline float fp16(float x) {
  float magnitude = fabsf(x);
  if (magnitude >= 65520.0f) return copysignf(INFINITY, x);
  if (magnitude < 0x1p-14f) return (x + copysignf(0.75f, x)) - copysignf(0.75f, x);  // fp32 steps by 2^-24 at 0.75
  return round_bits(x, 13);
}

static inline float operand(float x) {
  if (IS(M_BF16)) return round_bits(x, 16);
  if (IS(M_FP8)) return round_bits(x, 20);
  if (IS(M_TF32_TRUNCATED)) return of_bits(bits_of(x) & ~0x1fffu);
  if (IS(M_TF32_ROUNDED)) return round_bits(x, 13);
  if (IS(M_FP16_NO_RANGE)) return fp16(x);
  return x;
}

#endif
