/* Cheat: computes and writes the first half of the numbers only. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  float* answer = copy_of(x, bytes(seq_len));
  honest_block(x, answer, weights, seq_len);
  memcpy(output, answer, bytes(seq_len) / 2);
  free(answer);
}
