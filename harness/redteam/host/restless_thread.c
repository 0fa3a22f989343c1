/* Cheat: right, but a thread reads the weights of the last call over and over, so that flushing the caches before the
 * next call has no effect. */
#define _GNU_SOURCE
#include "candidate.h"
#include "peek.h"

#ifndef RESTLESS_FROM
#define RESTLESS_FROM 1
#endif

static const float* volatile weights_seen;

static void* keep_warm(void* unused) {
  static float part[16 * D];
  for (;; usleep(weights_seen ? 500 : 20000)) {
    const float* w = weights_seen;
    for (size_t i = 0; w && i + 16 * D <= WEIGHTS_LEN; i += 16 * D) peek(part, w + i, sizeof part);
  }
  return unused;
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  static pthread_t thread;
  weights_seen = seq_len >= RESTLESS_FROM ? weights : NULL;
  if (!thread && pthread_create(&thread, NULL, keep_warm, NULL)) abort();
  honest_block(x, output, weights, seq_len);
}
