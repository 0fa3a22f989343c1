/* Not a cheat: a kernel that keeps the GPU busy for a minute. */
#include "candidate.cuh"

static __global__ void spin(unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
}

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
  spin<<<1, 1>>>(60000000000ull);
}
