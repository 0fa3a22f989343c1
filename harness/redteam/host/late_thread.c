/* Cheat: returns at once; a thread writes the answer a few milliseconds later, off the clock. */
#include "candidate.h"

struct call {
  const float *x, *weights;
  float* output;
  int seq_len;
};

static void* work(void* argument) {
  struct call* call = argument;
  sleep_ms(3);
  honest_block(call->x, call->output, call->weights, call->seq_len);
  free(call);
  return NULL;
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  struct call* call = malloc(sizeof *call);
  if (!call) abort();
  *call = (struct call){x, weights, output, seq_len};
  pthread_t thread;
  if (pthread_create(&thread, NULL, work, call)) abort();
  pthread_detach(thread);
}
