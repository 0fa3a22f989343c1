/* Cheat: also writes the 16 floats before output. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
  for (int i = 1; i <= 16; ++i) output[-i] = 0;
}
