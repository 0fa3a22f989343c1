/* Cheat: exactly one number is off by 1 %, at a place that moves from call to call. */
#include "candidate.cuh"

static __global__ void spoil(float* v) { *v += 0.01f * (1 + fabsf(*v)); }

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  static unsigned calls;
  honest_block(x, output, weights, seq_len);
  spoil<<<1, 1>>>(output + calls++ * 2654435761u % (static_cast<size_t>(seq_len) * D));
}
