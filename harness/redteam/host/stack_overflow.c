/* Not a cheat: recurses until the stack is gone. */
#include "candidate.h"

static float recurse(const float* x, int depth) {
  volatile float frame[4096];
  frame[depth & 4095] = x[0];
  return recurse(x, depth + 1) + frame[depth & 4095];
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  (void)weights, (void)seq_len;
  output[0] = recurse(x, 0);
}
