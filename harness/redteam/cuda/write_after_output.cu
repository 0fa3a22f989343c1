/* Cheat: also zeroes the row after output's last. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
  cudaMemsetAsync(output + static_cast<size_t>(seq_len) * D, 0, bytes(1));
}
