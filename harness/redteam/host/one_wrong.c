/* Cheat: exactly one number is off by 1 %, at a place that moves from call to call. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  static unsigned calls;
  honest_block(x, output, weights, seq_len);
  size_t at = (size_t)(calls++ * 2654435761u) % floats(seq_len);
  output[at] += 0.01f * (1.0f + fabsf(output[at]));
}
