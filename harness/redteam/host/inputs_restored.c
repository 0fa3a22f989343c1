/* Cheat: works in x and in the weights, and has both as they were before it returns: a fault where they are read-only, a race with whoever reads them. */
#include "candidate.h"

static void clobber_and_restore(float* v, size_t size) {
  float* copy = copy_of(v, size);
  memset(v, 0, size);
  memcpy(v, copy, size);
  free(copy);
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
  clobber_and_restore((float*)weights, WEIGHTS_LEN * sizeof(float));
  clobber_and_restore((float*)x, bytes(seq_len));
}
