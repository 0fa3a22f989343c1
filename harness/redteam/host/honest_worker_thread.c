/* Honest, looks like deferred work: another thread does it all, but is joined before solve returns. */
#include "candidate.h"

struct call {
  const float *x, *weights;
  float* output;
  int seq_len;
};

static void* work(void* argument) {
  struct call* call = argument;
  honest_block(call->x, call->output, call->weights, call->seq_len);
  return NULL;
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  struct call call = {x, weights, output, seq_len};
  pthread_t worker;
  if (pthread_create(&worker, NULL, work, &call)) abort();
  pthread_join(worker, NULL);
}
