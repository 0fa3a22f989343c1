/* Cheat by accident: the kernel asks for more shared memory than there is, never runs, and nobody looks at the error.
 */
#include "candidate.cuh"

static __global__ void copy_tile(const float* from, float* to, size_t count) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = threadIdx.x < count ? from[threadIdx.x] : 0;
  to[threadIdx.x] = tile[threadIdx.x];
}

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  static block::workspace memory;
  static float* answer;
  cudaFree(answer);
  cudaMalloc(&answer, bytes(seq_len));
  block::launch(memory, x, answer, weights, seq_len, nullptr);
  copy_tile<<<1, 256, 1 << 20>>>(answer, output, static_cast<size_t>(seq_len) * D);
}
