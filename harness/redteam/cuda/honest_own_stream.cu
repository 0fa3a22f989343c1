/* Honest, looks like deferred work: a non-blocking stream of its own, waited for before the return. Inputs are ready
 * when solve is called only on the default stream, so that one is waited for first. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  cudaStreamSynchronize(nullptr);
  honest_block(x, output, weights, seq_len, non_blocking_stream());
  cudaStreamSynchronize(non_blocking_stream());
}
