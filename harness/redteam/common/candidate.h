/* What the host candidates share: the honest block to hide behind, and the sizes. */
#ifndef CANDIDATE_H
#define CANDIDATE_H

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../mutants/layout.h"

// The right answer, on the calling thread; output may be x.
void honest_block(const float* x, float* output, const float* weights, int seq_len);

static inline size_t floats(int seq_len) { return (size_t)seq_len * D; }
static inline size_t bytes(int seq_len) { return floats(seq_len) * sizeof(float); }

// A private copy that the caller owns.
static inline float* copy_of(const float* from, size_t size) {
  float* copy = malloc(size);
  if (!copy) abort();
  return memcpy(copy, from, size);
}

// 64-bit FNV-1a over every `step`-th float.
static inline uint64_t fingerprint(const float* v, size_t count, size_t step) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < count; i += step) {
    uint32_t bits;
    memcpy(&bits, v + i, sizeof bits);
    hash = (hash ^ bits) * 1099511628211u;
  }
  return hash;
}

static inline void sleep_ms(unsigned milliseconds) { usleep(milliseconds * 1000); }

#endif
