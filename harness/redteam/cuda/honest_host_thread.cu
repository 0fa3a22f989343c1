/* Honest, looks like a late thread: a host thread launches everything and is joined before the return. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  int device;
  cudaGetDevice(&device);
  std::thread([=] {
    cudaSetDevice(device);
    honest_block(x, output, weights, seq_len);
  }).join();
}
