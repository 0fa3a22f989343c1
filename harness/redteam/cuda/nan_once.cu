/* Cheat: one NaN, in the middle of an answer that is right; a maximum taken with NaN in it may not notice. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
  cudaMemsetAsync(output + bytes(seq_len) / 8 + 5, 0xff, sizeof(float));
}
