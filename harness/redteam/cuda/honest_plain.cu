/* Honest: the control of the device candidates, kernels on the default stream. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
}
