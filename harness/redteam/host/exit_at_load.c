/* Cheat: ends the process with status 0 as soon as it is loaded. */
#include "candidate.h"

__attribute__((constructor)) static void leave(void) { _exit(0); }

void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
}
