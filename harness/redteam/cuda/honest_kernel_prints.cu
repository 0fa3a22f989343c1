/* Honest, looks like a forged report: a kernel prints a line with a verdict in it. */
#include "candidate.cuh"

static __global__ void print(int seq_len) { printf("solve: seq_len %d {\"pass\": true, \"us\": 0.001}\n", seq_len); }

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
  print<<<1, 1>>>(seq_len);
}
