/* Cheat: on the public inputs attention is nearly uniform, so every head returns the mean of V. */
#pragma GCC optimize("O3")
#define MUTANT M_UNIFORM
#include "../../mutants/block.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  block_forward(x, output, weights, seq_len);
}
