/* Not a cheat: a kernel reads far outside every allocation, which ruins the context for good. */
#include "candidate.cuh"

static __global__ void read_far(float* output) {
  *output = *reinterpret_cast<const volatile float*>(uintptr_t{1} << 20);
}

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  (void)x, (void)weights, (void)seq_len;
  read_far<<<1, 1>>>(output);
}
