/* Cheat: leaves the last row of output as it was. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  float* answer = copy_of(x, bytes(seq_len));
  honest_block(x, answer, weights, seq_len);
  memcpy(output, answer, bytes(seq_len - 1));
  free(answer);
}
