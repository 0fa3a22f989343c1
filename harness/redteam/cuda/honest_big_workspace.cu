/* Honest, looks like a cache: keeps 2 GiB of device memory and writes all of it once. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  static void* workspace;
  if (!workspace) {
    cudaMalloc(&workspace, size_t{2} << 30);
    cudaMemsetAsync(workspace, 1, size_t{2} << 30);
  }
  honest_block(x, output, weights, seq_len);
}
