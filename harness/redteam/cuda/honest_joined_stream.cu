/* Honest, looks like deferred work: a non-blocking stream forked from the default stream by an event and joined to it
 * by another; no wait. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  static cudaEvent_t forked, joined;
  if (!forked) {
    cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
  }
  cudaEventRecord(forked, nullptr);
  cudaStreamWaitEvent(non_blocking_stream(), forked);
  honest_block(x, output, weights, seq_len, non_blocking_stream());
  cudaEventRecord(joined, non_blocking_stream());
  cudaStreamWaitEvent(nullptr, joined);
}
