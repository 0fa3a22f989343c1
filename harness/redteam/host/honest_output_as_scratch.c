/* Honest, looks like a wild write: fills output with rubbish before the answer, as a kernel that accumulates there
 * would. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  for (size_t i = 0; i < floats(seq_len); ++i) output[i] = NAN;
  honest_block(x, output, weights, seq_len);
}
