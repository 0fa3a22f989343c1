/* Honest: the control of the red team, nothing unusual. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
}
