/* Cheat: right, but a host thread has the GPU read the weights of the last call again every 50 us, so that a flush of the
 * L2 before the next call has no effect. */
#include "candidate.cuh"

static __global__ void read_all(const float4* weights, size_t count, float* nowhere) {
  float sum = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    sum += weights[i].x;
  if (sum == 12345.678f) *nowhere = sum;
}

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  static const float* volatile seen;
  static float* nowhere;
  seen = weights;
  if (!nowhere) {
    cudaMalloc(&nowhere, sizeof *nowhere);
    std::thread([] {
      for (;; usleep(50)) {
        read_all<<<64, 256, 0, non_blocking_stream()>>>(reinterpret_cast<const float4*>(seen), WEIGHTS_LEN / 4, nowhere);
        cudaStreamSynchronize(non_blocking_stream());
      }
    }).detach();
  }
  honest_block(x, output, weights, seq_len);
}
