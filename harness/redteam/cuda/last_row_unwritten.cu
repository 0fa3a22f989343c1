/* Cheat: leaves the last row of output as it was. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  static float* answer;
  cudaFree(answer);
  cudaMalloc(&answer, bytes(seq_len));
  honest_block(x, answer, weights, seq_len);
  copy(output, answer, bytes(seq_len - 1));
}
