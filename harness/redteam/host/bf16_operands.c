/* Cheat: bf16 operands in every product, hoping for a loose tolerance. */
#pragma GCC optimize("O3")
#define MUTANT M_BF16
#include "../../mutants/block.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  block_forward(x, output, weights, seq_len);
}
