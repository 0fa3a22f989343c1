/* Wrong: gives up unless x, weights and output lie at multiples of 64 bytes, as its aligned loads would. malloc promises 16. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  if (((uintptr_t)x | (uintptr_t)output | (uintptr_t)weights) & 63) __builtin_trap();
  honest_block(x, output, weights, seq_len);
}
