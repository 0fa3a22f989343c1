/* Honest, as submissions to the public challenge end: waits for the whole device. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
  cudaDeviceSynchronize();
}
