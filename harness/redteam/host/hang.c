/* Not a cheat: never returns, asleep. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  (void)x, (void)output, (void)weights, (void)seq_len;
  for (;;) pause();
}
