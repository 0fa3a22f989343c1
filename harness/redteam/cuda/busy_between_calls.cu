/* Cheat: right and fast, but after every return a thread keeps the GPU busy for 50 ms: whoever is measured next, a rival in
 * a comparison, shares it. */
#include "candidate.cuh"

static __global__ void spin(long long cycles) {
  for (const long long start = clock64(); clock64() - start < cycles;) {
  }
}

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
  static int calls;
  if (++calls % 4) return;
  std::thread([] {
    usleep(500);
    spin<<<264, 64, 0, non_blocking_stream()>>>(90000000);
  }).detach();
}
