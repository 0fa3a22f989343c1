/* Honest: operands rounded to nearest TF32, as tensor cores take them. The tolerance has room for it, and a grader must
 * leave it. */
#pragma GCC optimize("O3")
#define MUTANT M_TF32_ROUNDED
#include "../../mutants/block.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  block_forward(x, output, weights, seq_len);
}
